// One side of bench/exported.py: what an exported program costs to load and to run, on one thread.
//
//   exported_benchmark CHAIN.pt2 NODES DEEP.pt2 MODEL.pt2 CONFIG.json
//
// CHAIN adds 1 to one number, NODES times; DEEP is a program of many layers; MODEL is the program
// of the Llama that CONFIG describes. Prints one JSON line of medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/exported/exported_program.h"
#include "core/models/registry.h"
#include "core/nn/seeded_init.h"

namespace fsdp2 {
namespace {

constexpr int kRuns = 31;
constexpr int64_t kBatch = 4, kLength = 64, kVocabulary = 256;

template <typename Body>
double median_us(const Body& body) {
  std::vector<double> times;
  body();  // what happens once
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    times.push_back(taken.count());
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

std::shared_ptr<nn::Module> exported_module(const std::string& path) {
  exported::ExportedModel model = exported::load_exported(path);
  nn::materialize(*model.module, *model.values);
  return model.module;
}

std::shared_ptr<nn::Module> own_module(const std::string& config_path) {
  std::ifstream file(config_path);
  const std::string config{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::shared_ptr<nn::Module> module = models::build(config, at::kFloat);
  nn::SeededInit values(1, 0.02);
  nn::materialize(*module, values);
  return module;
}

// Microseconds a node: through the program, and as calls from C++.
double program_node_us(const std::string& path, double nodes) {
  const at::NoGradGuard no_grad;
  const auto module = exported_module(path);
  const at::Tensor one = at::ones({1}, at::device(at::kCPU).dtype(at::kFloat));
  return median_us([&] { (*module)(one); }) / nodes;
}

double direct_node_us(int nodes) {
  const at::NoGradGuard no_grad;
  const at::Tensor one = at::ones({1}, at::device(at::kCPU).dtype(at::kFloat));
  return median_us([&] {
           at::Tensor x = one;
           for (int i = 0; i < nodes; ++i) {
             x = x.add(1);
           }
         }) /
         nodes;
}

double step_us(const std::shared_ptr<nn::Module>& module) {
  const at::Tensor tokens = at::arange(kBatch * kLength, at::device(at::kCPU).dtype(at::kLong))
                                .remainder(kVocabulary)
                                .view({kBatch, kLength});
  return median_us([&] {
    module->zero_grad();
    (*module)(nn::Values{tokens, tokens.clone()}).toTensor().backward();
  });
}

int run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const int nodes = std::stoi(arguments.at(1));
  std::printf(
      "{\"node\": %.3f, \"direct\": %.3f, \"load\": %.0f, \"exported\": %.1f, \"own\": %.1f}\n",
      program_node_us(arguments.at(0), nodes), direct_node_us(nodes),
      median_us([&] { exported::load_exported(arguments.at(2)); }),
      step_us(exported_module(arguments.at(3))), step_us(own_module(arguments.at(4))));
  return 0;
}

}  // namespace
}  // namespace fsdp2

int main(int argc, char** argv) { return fsdp2::run({argv + 1, argv + argc}); }
