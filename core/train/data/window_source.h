// A data set as windows of one length, numbered from 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::train {

// On the CPU; the first three are [windows, S] int64.
struct TokenBatch {
  at::Tensor inputs;
  at::Tensor labels;     // of the next token; kIgnoredLabel where it is not to be learned
  at::Tensor positions;  // from 0 in each sequence; sequences of a row do not see each other
  // The images in the inputs, in their order, as vision-language models take them; undefined
  // where there are none.
  at::Tensor pixels = {};  // [patches, pixels of one] fp32
  at::Tensor grids = {};   // [images, 3] int64: frames, rows and columns of patches
  // The videos likewise.
  at::Tensor video_pixels = {};
  at::Tensor video_grids = {};
  at::Tensor seconds_per_grid = {};  // [videos] fp64, for models that take them
};

// Where the sequences of a batch begin among its tokens, row by row, and where the last one ends:
// [sequences + 1] int64.
at::Tensor boundaries_of(const at::Tensor& positions);

inline constexpr int64_t kIgnoredLabel = -100;

enum class DataOrder { kFile, kShuffle };

// Immutable: any thread may read from it.
class WindowSource {
 public:
  virtual ~WindowSource() = default;

  virtual const std::string& path() const = 0;
  // N. kInvalidArgument if there is not even one window, or none of this length.
  virtual int64_t window_count(int64_t sequence_length) const = 0;
  // The given windows, in their order. Errors: kInvalidArgument for a window outside [0, N);
  // kCorruptData for what cannot be trained on, with its place; kIo if the file has changed since
  // it was opened.
  virtual TokenBatch windows(const std::vector<int64_t>& windows,
                             int64_t sequence_length) const = 0;
  // In all windows together.
  virtual int64_t image_count() const { return 0; }
  virtual int64_t video_count() const { return 0; }
  // How many inputs of a forward the videos of a batch are; 0 where no window has any.
  virtual int64_t video_inputs() const { return 0; }
  // How much there is, as lines "tokens in the file=100", for ranks to compare.
  virtual std::string extent() const = 0;
  // What the order depends on, of a source whose windows are numbered without end in an order of
  // its own, for a checkpoint to hold; "" for a source whose order is the loader's.
  virtual std::string own_order() const { return ""; }
  // What was left out of the data set, for people; "" if nothing was.
  virtual std::string left_out() const { return ""; }
};

}  // namespace fsdp2::train
