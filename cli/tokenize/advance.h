// Shows how far the reading of a file is, on standard error: with a line that updates itself on a
// terminal, elsewhere with a line now and then.
#pragma once

#include <chrono>
#include <cstdint>

#include "cli/train/report/progress.h"

namespace fsdp2::cli {

class Advance {
 public:
  // total: the file's bytes; 0 if that is not known.
  Advance(bool quiet, int64_t total);
  ~Advance();
  Advance(const Advance&) = delete;
  Advance& operator=(const Advance&) = delete;

  void show(int64_t bytes, int64_t rows, int64_t tokens);
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  const int64_t total_;
  int columns_ = 0;
  const Progress::Style style_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_ = start_;
  bool is_shown_ = false;
};

}  // namespace fsdp2::cli
