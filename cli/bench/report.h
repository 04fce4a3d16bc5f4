// What `fsdp2 bench` prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/options.h"
#include "cli/bench/product_peak.h"
#include "cli/bench/run_figures.h"

namespace fsdp2::cli {

struct ModelBench {
  std::string model;
  std::vector<RunFigures> ours;    // of each round
  std::vector<RunFigures> python;  // likewise, or empty
  std::string python_obstacle;     // why Python could not train this model
};

struct Bench {
  ProductPeak peak;
  std::vector<ModelBench> models;
  std::string torch;            // the version that Python has; "" if it takes no part
  std::string python_obstacle;  // why it takes no part; "" where nobody wanted it to
};

std::string json_of(const Bench& bench, const BenchOptions& options);
std::string table_of(const Bench& bench, const BenchOptions& options);

// "1 step", "3 steps"
std::string counted(int64_t count, const std::string& what);

}  // namespace fsdp2::cli
