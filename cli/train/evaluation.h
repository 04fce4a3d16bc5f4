// The loss of data that is not trained on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/library.h"
#include "cli/train/flags/options.h"

namespace fsdp2::cli {

class Evaluation {
 public:
  // Collective. Opens --eval-data, if there is any.
  Evaluation(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size);

  // Whether there is an evaluation after this many steps, of a run that ends at `stop`.
  bool is_due(int64_t steps_done, int64_t stop) const;
  // Collective. The same windows each time, without dropout.
  fsdp2_evaluation run(const Module& module);

 private:
  const TrainOptions& options_;
  int64_t rows_of_forward_;
  Loader loader_;
};

// Its line of --metrics, and its line for people, without an end; after the step `step`.
nlohmann::ordered_json line_of(const fsdp2_evaluation& evaluation, int64_t step);
std::string told(const fsdp2_evaluation& evaluation, int64_t step);

}  // namespace fsdp2::cli
