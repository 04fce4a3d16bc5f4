// Where the run of a checkpoint stood in its data.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

namespace fsdp2::cli {

struct DataPlace {
  int64_t epoch = 0;
  int64_t window = 0;  // in the epoch
  int64_t steps = 0;   // taken so far

  // Whether the steps took so many windows each, of epochs of so many.
  bool has_taken(int64_t step_windows, int64_t epoch_windows) const {
    const auto product = [](int64_t a, int64_t b) {  // of numbers in a file, which may wrap around
      return static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
    };
    return product(epoch, epoch_windows) + static_cast<uint64_t>(window) ==
           product(steps, step_windows);
  }
};

// `checkpoint` as fsdp2_checkpoint_inspect describes it; nullopt if it does not say.
std::optional<DataPlace> data_place_in(const nlohmann::json& checkpoint);

}  // namespace fsdp2::cli
