// fsdp2-bench, which `fsdp2 bench` becomes: training on this machine's CPUs, measured against the
// fastest matrix products that they compute.
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench/options.h"
#include "cli/bench/product_peak.h"
#include "cli/bench/training_run.h"
#include "cli/end_process.h"
#include "cli/interruption.h"
#include "cli/library.h"
#include "cli/machine/child_program.h"
#include "cli/machine/size_text.h"

namespace fsdp2::cli {
namespace {

constexpr int64_t kProductSize = 2048;
constexpr int64_t kQuickProductSize = 1024;
constexpr double kPythonSeconds = 120;  // importing torch may take that long the first time

struct Line {
  std::string model;
  RunFigures run;
};

struct Bench {
  ProductPeak peak;
  std::vector<Line> lines;
  std::string torch;  // the version that Python has; "": none
};

void say(const std::string& text) { std::cerr << "fsdp2 bench: " << text << std::endl; }

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string version_of_torch() {
  try {
    const ChildEnd end =
        run_child({"/usr/bin/env", "python3", "-c", "import torch; print(torch.__version__)"}, {},
                  kPythonSeconds);
    return end.exit_code == 0 ? end.out.substr(0, end.out.find('\n')) : "";
  } catch (const std::exception&) {
    return "";
  }
}

Bench measure(const BenchOptions& options, const std::string& program) {
  Bench bench;
  const std::string dtype = options.param_dtype == "none" ? "fp32" : options.param_dtype;
  say("matrix products, " + counted(options.peak_threads(), "thread"));
  bench.peak = measure_product_peak(options.quick ? kQuickProductSize : kProductSize, dtype,
                                    options.peak_threads());
  for (const std::string& model : options.models) {
    say(model + ": " + counted(options.steps, "step") + " on " + counted(options.ranks, "rank") +
        " with " + counted(options.threads, "thread"));
    bench.lines.push_back({model, run_training(program, model, options)});
  }
  bench.torch = version_of_torch();
  return bench;
}

nlohmann::ordered_json json_of(const Bench& bench, const BenchOptions& options) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const Line& line : bench.lines) {
    runs.push_back({{"model", line.model},
                    {"parameters", line.run.parameters},
                    {"step_time_s", line.run.step_s},
                    {"tokens_per_s", line.run.tokens_per_s},
                    {"mfu", model_flops_utilisation(line.run, bench.peak.tflops)},
                    {"peak_rss_bytes", line.run.peak_rss_bytes}});
  }
  return {{"event", "bench"},
          {"ranks", options.ranks},
          {"threads", options.threads},
          {"seq_len", options.seq_len},
          {"global_batch", options.ranks * options.micro_batch},
          {"steps", options.steps},
          {"param_dtype", options.param_dtype},
          {"product",
           {{"size", bench.peak.size},
            {"dtype", bench.peak.dtype},
            {"threads", bench.peak.threads},
            {"tflops", bench.peak.tflops}}},
          {"runs", runs},
          {"python_torch", bench.torch}};
}

std::string row(const std::array<std::string, 6>& cells) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), "%-20.40s %12s %10s %10s %7s %12s\n", cells[0].c_str(),
                cells[1].c_str(), cells[2].c_str(), cells[3].c_str(), cells[4].c_str(),
                cells[5].c_str());
  return text.data();
}

std::string fixed(double number, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, number);
  return text.data();
}

std::string table_of(const Bench& bench, const BenchOptions& options) {
  std::string text = "products of " + std::to_string(bench.peak.size) + " x " +
                     std::to_string(bench.peak.size) + " matrices in " + bench.peak.dtype + " by " +
                     counted(bench.peak.threads, "thread") + ": " + fixed(bench.peak.tflops, 4) +
                     " TFLOP/s, the peak below\n" + counted(options.ranks, "rank") + " with " +
                     counted(options.threads, "thread") + ", a step of " +
                     std::to_string(options.ranks * options.micro_batch) + " x " +
                     std::to_string(options.seq_len) + " tokens\n\n" +
                     row({"model", "parameters", "step, s", "tokens/s", "mfu", "peak memory"});
  for (const Line& line : bench.lines) {
    text += row({line.model, std::to_string(line.run.parameters), fixed(line.run.step_s, 3),
                 fixed(line.run.tokens_per_s, 1),
                 fixed(100 * model_flops_utilisation(line.run, bench.peak.tflops), 1) + " %",
                 size_text(line.run.peak_rss_bytes)});
  }
  text +=
      "\nmfu = 6 x parameters x tokens/s / peak: the part of the peak that the model's own "
      "products\n"
      "reach; neither attention nor recomputation counts\n"
      "step: median, without the first; peak memory: of the fullest rank, program and libraries "
      "included\n\n";
  const std::string command = "python bench/side_by_side.py --nproc " +
                              std::to_string(options.ranks) + " (bench/README.md)";
  return text + (bench.torch.empty() ? "Python has no torch here; where it has, " + command +
                                           " runs Python's FSDP2 beside libfsdp2\n"
                                     : "Python has torch " + bench.torch + ": " + command +
                                           " runs its FSDP2 beside libfsdp2\n");
}

int run(const std::vector<std::string>& arguments) {
  return exit_code_of("fsdp2 bench", [&] {
    BenchOptions options;
    if (parse_bench_options(arguments, &options)) {
      note_interruptions();
      const auto own = std::filesystem::read_symlink("/proc/self/exe");
      const Bench bench = measure(options, (own.parent_path() / "fsdp2").string());
      std::cout << (options.json ? json_of(bench, options).dump() + "\n" : table_of(bench, options))
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
