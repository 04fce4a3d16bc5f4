// One side of bench/exported.py: what an exported program costs to load and to run, on one thread.
//
//   exported_benchmark CHAIN.pt2 NODES DEEP.pt2 MODEL.pt2 CONFIG.json
//
// CHAIN adds 1 to one number, NODES times; DEEP is a program of many layers; MODEL is the program
// of the Llama that CONFIG describes. Prints one JSON line of medians.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
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

// Time of the processor, so that other work on the machine counts little.
double process_us() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <typename Body>
double median_us(const Body& body) {
  std::vector<double> times;
  body();  // what happens once
  for (int run = 0; run < kRuns; ++run) {
    const double start = process_us();
    body();
    times.push_back(process_us() - start);
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

// The most that tensors took at a time while it was on this thread, beyond what there was before.
class PeakCounter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, int64_t bytes, size_t /*allocated*/,
                         size_t /*reserved*/, c10::Device /*device*/) override {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0;
  int64_t peak_ = 0;
};

struct StepCost {
  double us = 0;
  int64_t peak_bytes = 0;
};

StepCost step_cost(const std::shared_ptr<nn::Module>& module) {
  const at::Tensor tokens = at::arange(kBatch * kLength, at::device(at::kCPU).dtype(at::kLong))
                                .remainder(kVocabulary)
                                .view({kBatch, kLength});
  const auto step = [&] {
    module->zero_grad();
    (*module)(nn::Values{tokens, tokens.clone()}).toTensor().backward();
  };
  StepCost cost;
  cost.us = median_us(step);
  const auto counter = std::make_shared<PeakCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  step();
  cost.peak_bytes = counter->peak();
  return cost;
}

int run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  const int nodes = std::stoi(arguments.at(1));
  const StepCost exported = step_cost(exported_module(arguments.at(3)));
  const StepCost own = step_cost(own_module(arguments.at(4)));
  std::printf(
      "{\"node\": %.3f, \"direct\": %.3f, \"load\": %.0f, \"exported\": %.1f, \"own\": %.1f, "
      "\"exported_peak\": %lld, \"own_peak\": %lld}\n",
      program_node_us(arguments.at(0), nodes), direct_node_us(nodes),
      median_us([&] { exported::load_exported(arguments.at(2)); }), exported.us, own.us,
      static_cast<long long>(exported.peak_bytes), static_cast<long long>(own.peak_bytes));
  return 0;
}

}  // namespace
}  // namespace fsdp2

int main(int argc, char** argv) { return fsdp2::run({argv + 1, argv + argc}); }
