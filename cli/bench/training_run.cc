#include "cli/bench/training_run.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <vector>

#include "cli/library.h"
#include "cli/machine/child_program.h"

namespace fsdp2::cli {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A file of tokens that every vocabulary of at least 256 has, while this lives.
class TokenFile {
 public:
  explicit TokenFile(int64_t count)
      : path_((fs::temp_directory_path() / "fsdp2-bench-XXXXXX.bin").string()) {
    constexpr int kSuffix = 4;
    const int fd = mkstemps(path_.data(), kSuffix);
    if (fd < 0) {
      throw Failure(path_ + ": " + std::generic_category().message(errno));
    }
    close(fd);
    std::ofstream file(path_, std::ios::binary);
    uint32_t state = 1;
    for (int64_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      file.put(static_cast<char>(state >> 24U)).put('\0');
    }
    if (!file.flush()) {
      remove();
      throw Failure(path_ + ": could not be written");
    }
  }
  ~TokenFile() { remove(); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  void remove() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }

  std::string path_;
};

std::string message_of(const ChildEnd& end) {
  const size_t at = end.err.find("fsdp2 train: ");
  return at == std::string::npos ? end.last_words()
                                 : end.err.substr(at, end.err.find('\n', at) - at);
}

// The figures of the steps after the first, and of the summary.
RunFigures figures_in(const std::string& metrics, int64_t tokens_a_step) {
  std::istringstream lines(metrics);
  std::vector<double> seconds;
  RunFigures figures;
  for (std::string text; std::getline(lines, text);) {
    const json line = json::parse(text, nullptr, false);
    const std::string event = line.is_object() ? line.value("event", "") : "";
    if (event == "step" && line.at("step") != 0) {
      seconds.push_back(line.at("step_time_s"));
    } else if (event == "summary") {
      const std::vector<double> peaks = line.at("peak_rss_bytes");
      figures.parameters = line.at("parameters");
      figures.peak_rss_bytes = *std::max_element(peaks.begin(), peaks.end());
    }
  }
  std::sort(seconds.begin(), seconds.end());
  if (seconds.empty() || figures.parameters == 0) {
    throw Failure("fsdp2 train has told no steps");
  }
  figures.step_s = seconds[seconds.size() / 2];
  figures.tokens_per_s = static_cast<double>(tokens_a_step) / figures.step_s;
  return figures;
}

}  // namespace

RunFigures run_training(const std::string& program, const std::string& model,
                        const BenchOptions& options) {
  const int64_t tokens_a_step = options.ranks * options.micro_batch * options.seq_len;
  const TokenFile tokens(
      options.ranks * options.micro_batch * (options.seq_len + 1) * options.steps + 1);
  const ChildEnd end = run_child({program,
                                  "run",
                                  "--nproc-per-node",
                                  std::to_string(options.ranks),
                                  "--",
                                  program,
                                  "train",
                                  "--quiet",
                                  "--device",
                                  "cpu",
                                  "--model-config",
                                  model,
                                  "--tokens",
                                  tokens.path(),
                                  "--steps",
                                  std::to_string(options.steps),
                                  "--seq-len",
                                  std::to_string(options.seq_len),
                                  "--micro-batch",
                                  std::to_string(options.micro_batch),
                                  "--param-dtype",
                                  options.param_dtype,
                                  "--threads",
                                  std::to_string(options.threads)},
                                 {}, options.timeout_s);
  if (end.timed_out) {
    throw Failure(model + ": the run took longer than --timeout-s");
  }
  if (end.exit_code != 0) {
    throw Failure(model + ": " + message_of(end));
  }
  return figures_in(end.out, tokens_a_step);
}

double model_flops_utilisation(const RunFigures& run, double peak_tflops) {
  return 6 * static_cast<double>(run.parameters) * run.tokens_per_s / (peak_tflops * 1e12);
}

}  // namespace fsdp2::cli
