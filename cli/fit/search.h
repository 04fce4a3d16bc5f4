// The largest number of windows that fits, found with few trials.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace fsdp2::cli {

// What became of a job with micro batches of some size.
struct Outcome {
  enum class Kind {
    kFits,
    kTooLarge,  // for the memory
    kFailed,    // for another reason, which a smaller batch may not have
  };
  Kind kind = Kind::kFailed;
  double peak_bytes = 0;  // of the fullest rank, if it fits
  std::string message;    // unless it fits
};

struct Fit {
  int64_t micro_batch = 0;  // 0: not even one window
  double peak_bytes = 0;
  Outcome beyond;  // of the smallest one that did not fit; kFits: none was too large
  int64_t beyond_batch = 0;
};

// budget_bytes: of a rank, by which memory is taken to grow with each window; infinity: not known.
// Exact up to 32 windows, and beyond that to one part in 32. Memory that grows in steps costs some
// trials more, and changes nothing else.
Fit largest_fit(const std::function<Outcome(int64_t micro_batch)>& try_out, double budget_bytes,
                int64_t most);

}  // namespace fsdp2::cli
