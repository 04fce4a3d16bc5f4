#include "cli/fit/search.h"

#include <algorithm>
#include <cmath>

namespace fsdp2::cli {

namespace {

class Search {
 public:
  Search(const std::function<Outcome(int64_t)>& try_out, double budget_bytes, int64_t most)
      : try_out_(try_out), budget_bytes_(budget_bytes), upper_(most + 1) {}

  Fit run() {
    while (upper_ - fit_.micro_batch > std::max<int64_t>(1, fit_.micro_batch / kFineness) &&
           attempt(next())) {
    }
    return fit_;
  }

 private:
  static constexpr int64_t kFineness = 32;  // memory is not the same to the byte in each run
  static constexpr int64_t kGrowth = 8;     // a guess from two small batches may be far off

  // The size that the memory of the last two that fitted points to; 0 without two, or where memory
  // did not grow.
  int64_t guess() const {
    const double grown = fit_.peak_bytes - peak_before_;
    if (before_ == 0 || !(grown > 0) || std::isinf(budget_bytes_)) {
      return 0;
    }
    const double a_window = grown / static_cast<double>(fit_.micro_batch - before_);
    const double more = std::floor((budget_bytes_ - fit_.peak_bytes) / a_window);
    return fit_.micro_batch + static_cast<int64_t>(std::min(more, 1e15));
  }

  int64_t next() {
    const int64_t lower = fit_.micro_batch;
    if (lower == 0) {
      return 1;
    }
    const int64_t guessed = guess();
    if (!has_upper_) {
      const int64_t least = lower == 1 ? 2 : lower + 1;
      const int64_t wanted = guessed == 0 ? 2 * lower : guessed;
      return std::clamp(wanted, least, std::min(kGrowth * lower, upper_ - 1));
    }
    // A guess once; where it was not the end, halving is.
    const int64_t middle = lower + (upper_ - lower) / 2;
    const bool is_new = guessed > lower && guessed < upper_ && guessed != guessed_;
    guessed_ = guessed;
    return is_new ? guessed : middle;
  }

  // False: nothing more can be found out.
  bool attempt(int64_t size) {
    const Outcome outcome = try_out_(size);
    if (outcome.kind == Outcome::Kind::kFits) {
      before_ = fit_.micro_batch;
      peak_before_ = fit_.peak_bytes;
      fit_.micro_batch = size;
      fit_.peak_bytes = outcome.peak_bytes;
      return true;
    }
    upper_ = size;
    has_upper_ = true;
    fit_.beyond = outcome;
    fit_.beyond_batch = size;
    return size > 1;
  }

  const std::function<Outcome(int64_t)>& try_out_;
  const double budget_bytes_;
  int64_t upper_;  // did not fit, or is beyond the most
  bool has_upper_ = false;
  int64_t before_ = 0;  // the one that fitted before
  double peak_before_ = 0;
  int64_t guessed_ = 0;
  Fit fit_{0, 0, {Outcome::Kind::kFits, 0, ""}, 0};
};

}  // namespace

Fit largest_fit(const std::function<Outcome(int64_t micro_batch)>& try_out, double budget_bytes,
                int64_t most) {
  return Search(try_out, budget_bytes, most).run();
}

}  // namespace fsdp2::cli
