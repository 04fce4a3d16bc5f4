#include "cli/bench/run_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/library.h"

namespace fsdp2::cli {

namespace {

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return (numbers[(numbers.size() - 1) / 2] + numbers[numbers.size() / 2]) / 2;
}

template <typename Row, typename Number>
double median_over(const std::vector<Row>& rows, Number number) {
  std::vector<double> numbers;
  for (const Row& row : rows) {
    numbers.push_back(number(row));
  }
  return median(numbers);
}

double largest_difference(const std::vector<double>& ours, const std::vector<double>& theirs) {
  double largest = 0;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    largest = std::max(largest, std::abs(ours[i] - theirs[i]) / std::abs(theirs[i]));
  }
  return largest;
}

SideRatio ratio_within(const RunFigures& ours, const RunFigures& theirs) {
  return {ours.step_s / theirs.step_s, ours.tokens_per_s / theirs.tokens_per_s,
          ours.peak_rss_bytes / theirs.peak_rss_bytes,
          largest_difference(ours.losses, theirs.losses)};
}

}  // namespace

RunFigures figures_of(const JobEnd& job, int64_t tokens_a_step) {
  if (job.steps.size() < 2) {
    throw Failure("the trainer has reported " + std::to_string(job.steps.size()) +
                  " steps: expected at least 2");
  }
  RunFigures figures;
  std::vector<double> seconds;
  for (const nlohmann::json& step : job.steps) {
    seconds.push_back(step.at("step_time_s"));
    figures.losses.push_back(step.at("loss"));
  }
  seconds.erase(seconds.begin());
  const std::vector<double> peaks = job.summary.at("peak_rss_bytes");
  figures.parameters = job.summary.at("parameters");
  figures.step_s = median(seconds);
  figures.tokens_per_s = static_cast<double>(tokens_a_step) / figures.step_s;
  figures.peak_rss_bytes = *std::max_element(peaks.begin(), peaks.end());
  return figures;
}

RunFigures median_of(const std::vector<RunFigures>& rounds) {
  RunFigures figures = rounds.front();
  figures.step_s = median_over(rounds, [](const RunFigures& run) { return run.step_s; });
  figures.tokens_per_s =
      median_over(rounds, [](const RunFigures& run) { return run.tokens_per_s; });
  figures.peak_rss_bytes =
      median_over(rounds, [](const RunFigures& run) { return run.peak_rss_bytes; });
  return figures;
}

SideRatio ratio_of(const std::vector<RunFigures>& ours, const std::vector<RunFigures>& theirs) {
  std::vector<SideRatio> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(ratio_within(ours[i], theirs[i]));
  }
  const auto largest = std::max_element(ratios.begin(), ratios.end(),
                                        [](const SideRatio& one, const SideRatio& other) {
                                          return one.loss_difference < other.loss_difference;
                                        });
  return {median_over(ratios, [](const SideRatio& ratio) { return ratio.step_s; }),
          median_over(ratios, [](const SideRatio& ratio) { return ratio.tokens_per_s; }),
          median_over(ratios, [](const SideRatio& ratio) { return ratio.peak_rss_bytes; }),
          largest->loss_difference};
}

double model_flops_utilisation(const RunFigures& run, double peak_tflops) {
  return 6 * static_cast<double>(run.parameters) * run.tokens_per_s / (peak_tflops * 1e12);
}

}  // namespace fsdp2::cli
