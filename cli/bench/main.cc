// fsdp2-bench, which `fsdp2 bench` becomes: training on this machine's CPUs, measured against the
// fastest matrix products that they compute, and beside Python's FSDP2 where there is one.
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench/options.h"
#include "cli/bench/product_peak.h"
#include "cli/bench/python_side.h"
#include "cli/bench/report.h"
#include "cli/bench/training_run.h"
#include "cli/end_process.h"
#include "cli/interruption.h"
#include "cli/library.h"

namespace fsdp2::cli {
namespace {

constexpr int64_t kProductSize = 2048;
constexpr int64_t kQuickProductSize = 1024;

void say(const std::string& text) { std::cerr << "fsdp2 bench: " << text << std::endl; }

// The Python that takes part, or none, and then what keeps it from that.
std::unique_ptr<PythonSide> find_python(const BenchOptions& options, std::string* obstacle) {
  if (options.python == "none") {
    return nullptr;
  }
  auto side = std::make_unique<PythonSide>(options.may_skip_python() ? "python3" : options.python);
  if (side->obstacle().empty()) {
    return side;
  }
  if (!options.may_skip_python()) {
    throw Failure("--python " + side->obstacle() +
                  "; expected a Python with torch of 2.6 or later, transformers and safetensors");
  }
  *obstacle = side->obstacle();
  return nullptr;
}

// What fails of Python's part keeps Python out, of that model's table only.
template <typename Work>
void for_python(const BenchOptions& options, ModelBench* bench, const Work& work) {
  try {
    work();
  } catch (const Failure& failure) {
    if (!options.may_skip_python()) {
      throw;
    }
    bench->python.clear();
    bench->python_obstacle = failure.what();
  }
}

ModelBench measure_model(const std::string& fsdp2, const std::string& model,
                         const BenchOptions& options, const PythonSide* python) {
  const std::string job = ": " + counted(options.steps, "step") + " on " +
                          counted(options.ranks, "rank") + " with " +
                          counted(options.threads, "thread");
  ModelBench bench;
  bench.model = model;
  TrainingRuns runs(fsdp2, model, options);
  if (python != nullptr) {
    for_python(options, &bench, [&] { runs.write_weights(); });
  }
  for (int64_t round = 0; round < options.rounds; ++round) {
    say(model + job);
    bench.ours.push_back(runs.ours());
    if (python != nullptr && bench.python_obstacle.empty()) {
      say(model + ": the same with Python's FSDP2");
      for_python(options, &bench, [&] { bench.python.push_back(runs.python(*python)); });
    }
  }
  return bench;
}

Bench measure(const BenchOptions& options, const std::string& fsdp2) {
  Bench bench;
  const std::unique_ptr<PythonSide> python = find_python(options, &bench.python_obstacle);
  bench.torch = python == nullptr ? "" : python->torch_version();
  const std::string dtype = options.param_dtype == "none" ? "fp32" : options.param_dtype;
  say("matrix products, " + counted(options.peak_threads(), "thread"));
  bench.peak = measure_product_peak(options.quick ? kQuickProductSize : kProductSize, dtype,
                                    options.peak_threads());
  for (const std::string& model : options.models) {
    bench.models.push_back(measure_model(fsdp2, model, options, python.get()));
  }
  return bench;
}

int run(const std::vector<std::string>& arguments) {
  return exit_code_of("fsdp2 bench", [&] {
    BenchOptions options;
    if (parse_bench_options(arguments, &options)) {
      note_interruptions();
      const auto own = std::filesystem::read_symlink("/proc/self/exe");
      const Bench bench = measure(options, (own.parent_path() / "fsdp2").string());
      std::cout << (options.json ? json_of(bench, options) : table_of(bench, options))
                << std::flush;
    }
    return 0;
  });
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::run({argv + 1, argv + argc}));
}
