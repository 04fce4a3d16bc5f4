// What is written of one step.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

// What a step took.
struct StepTimes {
  double seconds;    // the reading of its batch included
  double data_wait;  // of these, until its batch was there
  double tokens_per_second;
};

// What a step of the model computes, and with what.
struct Compute {
  int64_t n_parameters;
  int64_t n_ranks;
};

// The line also has the memory that this process uses now and, if --peak-tflops is given, model
// FLOPs utilisation: 6 FLOPs for each parameter and token (2 in forward, 4 in backward), as a part
// of what all ranks could do. The products of attention, which have no parameters, and what is
// computed a second time count nothing; frozen parameters and idle experts count like the others.
nlohmann::ordered_json step_line(const TrainOptions& options, const fsdp2_step_result& result,
                                 const StepTimes& times, const Compute& compute);

}  // namespace fsdp2::cli
