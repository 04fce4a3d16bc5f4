// Several data sets as one, by weights.
//
// Each source has a fixed number of every kCycle windows, its share, by its weight; the next window
// is always of the source that is furthest behind its share. So which window has number i follows
// from i alone: it is the same on all ranks, and for every world size.
//
// A source goes through its own windows again and again, in epochs of its own: in the order of the
// file, or in a permutation that follows from the seed, the source's number and its epoch.
//
// Immutable: any thread may read from it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/train/data/window_source.h"

namespace fsdp2::train {

struct MixturePart {
  std::shared_ptr<const WindowSource> source;
  double weight = 0;  // beside those of the others; their sum is anything
};

class Mixture : public WindowSource {
 public:
  static constexpr int64_t kCycle = int64_t{1} << 16;

  struct Draw {
    size_t part;
    int64_t epoch;   // of the part
    int64_t window;  // of its source
  };

  // kInvalidArgument for no part, more than 256, or a weight that is no positive number or less
  // than a window in kCycle of the sum; and what the sources have to say of the length.
  Mixture(std::vector<MixturePart> parts, int64_t sequence_length, DataOrder order, uint64_t seed);

  // What window number `number` is. REQUIRES: number >= 0.
  Draw draw(int64_t number) const;

  const std::string& path() const override { return parts_.front().source->path(); }
  // All sources together, each counted once.
  int64_t window_count(int64_t sequence_length) const override;
  TokenBatch windows(const std::vector<int64_t>& numbers, int64_t sequence_length) const override;
  int64_t image_count() const override;
  int64_t video_count() const override;
  int64_t video_inputs() const override;
  std::string extent() const override;
  std::string left_out() const override;
  std::string own_order() const override;

 private:
  void lay_out_cycle();

  const std::vector<MixturePart> parts_;
  const DataOrder order_;
  const uint64_t seed_;
  std::vector<int64_t> counts_;   // windows of each source
  std::vector<int64_t> shares_;   // of each source in a cycle; kCycle in all
  std::vector<uint8_t> turns_;    // whose window each place of the cycle is
  std::vector<uint16_t> before_;  // places before it that are of the same source
};

}  // namespace fsdp2::train
