// Training runs of the fsdp2 command, and the golden values of the reference program.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.h"

namespace fsdp2::test {

using Json = nlohmann::json;

struct Training {
  Outcome outcome;
  std::vector<Json> steps;
  Json summary;
};

// `fsdp2 train` with these arguments on so many ranks, started by `fsdp2 run`; without it on one
// rank. One thread a rank.
Training train(int ranks, const std::vector<std::string>& arguments, RunIn how = {});

// What a training run has printed.
Training read_training(Outcome outcome);

// The lines of metrics that have this event.
std::vector<Json> events_of(const Training& training, const std::string& name);
// The first of them; without one, a failure of the test and an empty object.
Json event_of(const Training& training, const std::string& name);

// A config.json, in a folder of its own: a Llama of 4 layers and 200 thousand parameters that
// learns bytes within a few steps, for what does not depend on the size of a model.
std::string small_llama();

// A config.json, in a folder of its own: a Llama with next to no activations at short lengths.
std::string config_of_width(int layers, int hidden, int intermediate, int vocabulary);

// Arguments: a golden model and its tokens.
std::vector<std::string> golden_inputs(const std::string& model);

Json golden(const std::string& model);

// The flags of a golden run; those of engines that this program does not have are left out.
std::vector<std::string> flags_of(const Json& golden_run);

struct Tolerance {
  double loss;
  double grad_norm;
};

// Expects the same steps, up to a relative tolerance. `expected` has lists by step, as golden files
// do: loss, grad_norm, lr and, where known, grad_norm_fp64, which is as good as grad_norm.
void expect_same_steps(const std::vector<Json>& steps, const Json& expected,
                       const Tolerance& tolerance);

// Steps as expect_same_steps takes them.
Json as_lists(const std::vector<Json>& steps);

// a + b
std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b);

}  // namespace fsdp2::test
