// The batches of one rank, in an order that does not depend on how many ranks there are.
//
//   auto tokens = std::make_shared<TokenFile>("train.bin", model->vocab_size());
//   DataLoaderOptions options;
//   options.rank = rank, options.world_size = world_size, options.accumulation_steps = 2;
//   options.batch_size = micro_batch_size(global_batch, world_size, 2);
//   options.sequence_length = 1024;
//   DataLoader loader(tokens, options);
//   TokenBatch batch = loader.next();
//
// A step takes G = batch_size * world_size * accumulation_steps windows of one sequence that all
// ranks know: at micro step a rank r takes batch_size windows from number (a * world_size + r) *
// batch_size of the step on. So the windows of a step are the same for every world size and every
// accumulation with the same G, and training can go on with another world size.
//
// The sequence, with N windows in the file:
//   kFile     0 1 ... N-1 0 1 ...: window number i is i mod N, across steps and epochs
//   kShuffle  each epoch is a permutation of the N windows that follows from seed and epoch alone.
//             An epoch is a whole number of steps: the last one is padded with the epoch's first
//             windows, or dropped with the windows that do not fill it (others each epoch).
// A mixture (mixture.h) has a sequence of its own, without end.
//
// With read_ahead, a thread prepares that many batches while a step runs. What it has prepared does
// not count: a position is that of the batches that `next` has returned, and an error comes with
// the batch that has it.
//
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/train/data/read_ahead.h"
#include "core/train/data/window_source.h"

namespace fsdp2::train {

enum class LastStep { kPad, kDrop };

struct DataLoaderOptions {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t batch_size = 1;          // windows a rank takes at a micro step
  int64_t accumulation_steps = 1;  // micro steps a step
  int64_t sequence_length = 0;     // S; must be set
  DataOrder order = DataOrder::kFile;
  uint64_t seed = 0;                    // kShuffle
  LastStep last_step = LastStep::kPad;  // kShuffle
  int64_t read_ahead = 0;               // batches; 0: none is read before it is asked for
};

// Where a run stands in its data: the same on all ranks, for a checkpoint to hold. The fields from
// window_count on are there to notice that the data or its order changed.
struct DataPosition {
  int64_t epoch = 0;
  int64_t window = 0;  // number of the next window within the epoch's order
  int64_t window_count = 0;
  int64_t sequence_length = 0;
  std::optional<uint64_t> shuffle_seed = {};  // none: kFile
  int64_t steps = 0;                          // whole ones taken so far; no part of where it stands
  std::string own_order = {};                 // of a mixture
};

bool operator==(const DataPosition& a, const DataPosition& b);

// A global batch split over ranks and micro steps; kInvalidArgument if it does not divide.
int64_t micro_batch_size(int64_t global_batch, int64_t world_size, int64_t accumulation_steps);

class DataLoader {
 public:
  // The first rank warns in the log of what the data leave out.
  // kInvalidArgument for options out of range, a file without a window, or kDrop of a file that
  // does not fill one step.
  DataLoader(std::shared_ptr<const WindowSource> data, const DataLoaderOptions& options);

  const DataLoaderOptions& options() const { return options_; }
  // N.
  int64_t window_count() const { return window_count_; }
  // In all windows.
  int64_t image_count() const { return data_->image_count(); }
  int64_t video_count() const { return data_->video_count(); }
  int64_t video_inputs() const { return data_->video_inputs(); }
  // Rounded up; of a mixture: as many as its files have windows for.
  int64_t steps_per_epoch() const;

  // The windows that `next` reads.
  std::vector<int64_t> next_windows() const;
  // The batch of this rank at this micro step; goes on to the next micro step unless it throws.
  TokenBatch next();

  // Whole steps taken, counted on from that of the last seek.
  int64_t steps() const { return first_step_ + micro_steps_ / options_.accumulation_steps; }

  DataPosition position() const;
  // kInvalidArgument if N, S, the order, its seed or the position do not fit.
  void check(const DataPosition& position) const;
  // Goes to a position of any loader over the same data, also one of another world size; with
  // another G it goes on after the windows used. Errors: those of check.
  void seek(const DataPosition& position);
  // Goes to where a run with these options is before the step (from 0): all that is needed to go on
  // from a checkpoint that holds only its step number.
  void seek_step(int64_t step);

 private:
  // Window number `number` of an epoch; numbers past the epoch's end run on into the next.
  int64_t window_at(int64_t epoch, int64_t number) const;
  // The windows of this rank, `micro_steps` after the next micro step.
  std::vector<int64_t> windows_after(int64_t micro_steps) const;
  TokenBatch read_next();
  void lay_out_epoch();
  void go_to(int64_t epoch, int64_t window, int64_t steps);

  const std::shared_ptr<const WindowSource> data_;
  const DataLoaderOptions options_;
  const int64_t window_count_;
  const std::string own_order_;     // the source's; "": options_.order
  int64_t micro_step_windows_ = 0;  // over all ranks
  int64_t step_windows_ = 0;        // G
  int64_t epoch_windows_ = 0;       // of the sequence, padded or cut
  int64_t epoch_ = 0;
  int64_t window_ = 0;       // less than epoch_windows_
  int64_t first_step_ = 0;   // that the last seek went to
  int64_t micro_steps_ = 0;  // taken since
  std::unique_ptr<ReadAhead> ahead_;
};

}  // namespace fsdp2::train
