#include "cli/bench/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/machine/size_text.h"

namespace fsdp2::cli {

namespace {

using Json = nlohmann::ordered_json;

Json figures_json(const RunFigures& run, const ProductPeak& peak) {
  return {{"step_time_s", run.step_s},
          {"tokens_per_s", run.tokens_per_s},
          {"mfu", model_flops_utilisation(run, peak.tflops)},
          {"peak_rss_bytes", run.peak_rss_bytes}};
}

Json model_json(const ModelBench& bench, const ProductPeak& peak) {
  const RunFigures ours = median_of(bench.ours);
  Json line = {{"model", bench.model}, {"parameters", ours.parameters}};
  line.update(figures_json(ours, peak));
  if (!bench.python.empty()) {
    const SideRatio ratio = ratio_of(bench.ours, bench.python);
    line["python"] = figures_json(median_of(bench.python), peak);
    line["ratio"] = {{"step_time_s", ratio.step_s},
                     {"tokens_per_s", ratio.tokens_per_s},
                     {"peak_rss_bytes", ratio.peak_rss_bytes}};
    line["largest_relative_loss_difference"] = ratio.loss_difference;
  }
  if (!bench.python_obstacle.empty()) {
    line["python_obstacle"] = bench.python_obstacle;
  }
  return line;
}

std::string row(const std::array<std::string, 6>& cells) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), "%-20.40s %12s %10s %10s %7s %12s\n", cells[0].c_str(),
                cells[1].c_str(), cells[2].c_str(), cells[3].c_str(), cells[4].c_str(),
                cells[5].c_str());
  return text.data();
}

std::string printed(const char* format, double number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), format, number);
  return text.data();
}

std::string row_of(const std::string& name, const RunFigures& run, const ProductPeak& peak) {
  return row({name, std::to_string(run.parameters), printed("%.3f", run.step_s),
              printed("%.1f", run.tokens_per_s),
              printed("%.1f %%", 100 * model_flops_utilisation(run, peak.tflops)),
              size_text(run.peak_rss_bytes)});
}

std::string rows_of(const ModelBench& bench, const ProductPeak& peak) {
  std::string text = row_of(bench.model, median_of(bench.ours), peak);
  if (!bench.python.empty()) {
    const SideRatio ratio = ratio_of(bench.ours, bench.python);
    text += row_of("  Python", median_of(bench.python), peak);
    text += row({"  ours / Python", "", printed("%.3f", ratio.step_s),
                 printed("%.3f", ratio.tokens_per_s), "", printed("%.3f", ratio.peak_rss_bytes)});
    text += "  losses of both: apart by " + printed("%.1e", ratio.loss_difference) +
            " at most, relatively\n";
  }
  if (!bench.python_obstacle.empty()) {
    text += "  not beside Python: " + bench.python_obstacle + "\n";
  }
  return text;
}

std::string about_python(const Bench& bench) {
  const bool took_part = std::any_of(bench.models.begin(), bench.models.end(),
                                     [](const ModelBench& model) { return !model.python.empty(); });
  if (took_part) {
    return "Python: FSDP2 of torch " + bench.torch + ", with its fused AdamW\n";
  }
  return bench.python_obstacle.empty()
             ? ""
             : "not beside Python's FSDP2: " + bench.python_obstacle +
                   "; --python names a Python with torch,\ntransformers and safetensors\n";
}

}  // namespace

std::string counted(int64_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string json_of(const Bench& bench, const BenchOptions& options) {
  Json runs = Json::array();
  for (const ModelBench& model : bench.models) {
    runs.push_back(model_json(model, bench.peak));
  }
  const Json line = {{"event", "bench"},
                     {"ranks", options.ranks},
                     {"threads", options.threads},
                     {"seq_len", options.seq_len},
                     {"global_batch", options.ranks * options.micro_batch},
                     {"steps", options.steps},
                     {"rounds", options.rounds},
                     {"param_dtype", options.param_dtype},
                     {"product",
                      {{"size", bench.peak.size},
                       {"dtype", bench.peak.dtype},
                       {"threads", bench.peak.threads},
                       {"tflops", bench.peak.tflops}}},
                     {"runs", runs},
                     {"python_torch", bench.torch},
                     {"python_obstacle", bench.python_obstacle}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string table_of(const Bench& bench, const BenchOptions& options) {
  std::string text =
      "products of " + std::to_string(bench.peak.size) + " x " + std::to_string(bench.peak.size) +
      " matrices in " + bench.peak.dtype + " by " + counted(bench.peak.threads, "thread") + ": " +
      printed("%.4f", bench.peak.tflops) + " TFLOP/s, the peak below\n" +
      counted(options.ranks, "rank") + " with " + counted(options.threads, "thread") +
      ", a step of " + std::to_string(options.ranks * options.micro_batch) + " x " +
      std::to_string(options.seq_len) + " tokens\n\n" +
      row({"model", "parameters", "step, s", "tokens/s", "mfu", "peak memory"});
  for (const ModelBench& model : bench.models) {
    text += rows_of(model, bench.peak);
  }
  text +=
      "\nmfu = 6 x parameters x tokens/s / peak: the part of the peak that the model's own "
      "products\n"
      "reach; neither attention nor recomputation counts\n"
      "step: median, without the first; peak memory: of the fullest rank, program and libraries "
      "included\n";
  if (options.rounds > 1) {
    text +=
        "medians over " + counted(options.rounds, "round") + ", of ratios those within a round\n";
  }
  return text + about_python(bench);
}

}  // namespace fsdp2::cli
