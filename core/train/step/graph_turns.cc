#include "core/train/step/graph_turns.h"

namespace fsdp2::train {

GraphTurns::Turn GraphTurns::next(const StepKey& key) {
  if (recorded_.count(key) > 0) {
    return Turn::kReplay;
  }
  if (refused_.count(key) > 0 || refused_.size() >= kMostRefusals) {
    return Turn::kRun;
  }
  if (counts_.size() >= kMostCounted && counts_.count(key) == 0) {
    counts_.clear();
  }
  int& count = counts_[key];
  if (count < kWarmUps) {
    ++count;
    return Turn::kRun;
  }
  if (recorded_.size() >= kMostGraphs) {
    full_ = full_ == Full::kNo ? Full::kSeen : full_;
    return Turn::kRun;
  }
  counts_.erase(key);
  return Turn::kRecord;
}

void GraphTurns::forget() {
  recorded_.clear();
  counts_.clear();
}

bool GraphTurns::is_newly_full() {
  if (full_ != Full::kSeen) {
    return false;
  }
  full_ = Full::kTold;
  return true;
}

}  // namespace fsdp2::train
