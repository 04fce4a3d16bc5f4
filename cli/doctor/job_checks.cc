#include "cli/doctor/job_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "cli/doctor/full_weights.h"
#include "cli/doctor/small_job.h"
#include "cli/machine/size_text.h"

namespace fsdp2::cli {

namespace {

using Flags = std::vector<std::string>;
using nlohmann::json;

constexpr int kSteps = 20, kSavedStep = 10;

Flags common_flags(int windows) {
  return {"--global-batch", std::to_string(windows), "--seq-len", "32", "--lr-schedule", "cosine"};
}

Flags joined(Flags a, const Flags& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Finding failed(const std::string& name, const std::string& found, const std::string& remedy) {
  return {name, Verdict::kFailed, found, remedy};
}

Finding job_failed(const std::string& name, const JobEnd& job) {
  return failed(name, job.cause(),
                "docs/troubleshooting.md has the messages; the lines above tell what this machine "
                "lacks");
}

std::string of_ranks(int ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

// ---- the five checks

Finding sharding_is_real(const JobEnd& job, int ranks) {
  const std::string name = "sharding";
  const double whole = job.summary.at("parameters");
  const std::vector<double> parts = job.summary.at("local_parameters");
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  const double most = *std::max_element(parts.begin(), parts.end());
  const std::string found = "the fullest of " + of_ranks(ranks) + " holds " +
                            number_text(100 * most / whole, 4) + " % of " + number_text(whole, 9) +
                            " parameters";
  // Uneven dims give the first ranks some rows more, at most those of the shortest dim.
  const double fair = std::ceil(SmallJob::kRows / ranks) / SmallJob::kRows;
  if (sum != whole || parts.size() != static_cast<size_t>(ranks) || most > fair * whole) {
    return failed(name, found + ", all together " + number_text(100 * sum / whole, 4) + " %",
                  "this is not full sharding: report it with the output of --json");
  }
  return {name, Verdict::kOk, found};
}

// One step of plain SGD with a rate of 1: what two models differ in after it, their gradients
// differed in.
Finding gradients_are_those_of_one_rank(const SmallJob& jobs, int ranks) {
  const std::string name = "gradients";
  const Flags flags =
      joined(common_flags(SmallJob::global_batch(ranks)),
             {"--optimizer", "sgd", "--momentum", "0", "--weight-decay", "0", "--lr", "1",
              "--lr-schedule", "constant", "--steps", "1", "--full-state-dict"});
  const std::string many = jobs.path("many.safetensors"), one = jobs.path("one.safetensors");
  const JobEnd of_many = jobs.train(ranks, joined(flags, {many}));
  const JobEnd of_one = jobs.train(1, joined(flags, {one}));
  for (const JobEnd* job : {&of_many, &of_one}) {
    if (!job->is_well() || job->steps.empty()) {
      return job_failed(name, *job);
    }
  }
  const WeightDifference difference = compare_weights(many, one);
  const double norm = of_one.steps.front().at("grad_norm");
  const double relative = difference.distance / norm;
  const std::string found = "those of " + of_ranks(ranks) + " differ from one rank's by " +
                            number_text(relative, 2) + " of their norm";
  constexpr double kRounding = 1e-4;
  if (!(relative <= kRounding)) {
    return failed(name, found + ", most in " + difference.where,
                  "ranks do not add up what they should: report it with the output of --json");
  }
  return {name, Verdict::kOk, found};
}

Finding loss_falls(const JobEnd& job) {
  const std::string name = "loss";
  constexpr size_t kMean = 3;
  const auto mean = [&](size_t first) {
    double sum = 0;
    for (size_t i = first; i < first + kMean; ++i) {
      sum += job.steps[i].at("loss").get<double>();
    }
    return sum / kMean;
  };
  const double first = mean(0), last = mean(job.steps.size() - kMean);
  const std::string found = "falls from " + number_text(first, 4) + " to " + number_text(last, 4) +
                            " in " + std::to_string(job.steps.size()) + " steps";
  constexpr double kClearly = 0.9;
  if (!(last < kClearly * first)) {
    return failed(name, found, "training does not work here: report it with the output of --json");
  }
  return {name, Verdict::kOk, found};
}

// What the fullest rank has grown by since before it had a model.
double growth_of(const JobEnd& job) {
  const std::vector<double> peak = job.summary.at("peak_rss_bytes");
  const std::vector<double> before = job.summary.at("rss_before_model_bytes");
  double most = 0;
  for (size_t i = 0; i < peak.size(); ++i) {
    most = std::max(most, peak[i] - before[i]);
  }
  return most;
}

// Parameters, gradients and AdamW's two numbers, 4 bytes each, shrink with the ranks.
Finding memory_is_that_of_a_shard(const SmallJob& jobs, int ranks) {
  const std::string name = "memory of a rank";
  // With memory that is kept between steps, the peak depends on where the system puts blocks.
  const Flags flags = joined(common_flags(SmallJob::global_batch(ranks)),
                             {"--steps", "2", "--keep-memory", "false"});
  const JobEnd job = jobs.train(ranks, flags);
  const JobEnd alone = ranks == 1 ? job : jobs.train(1, flags);
  for (const JobEnd* each : {&job, &alone}) {
    if (!each->is_well()) {
      return job_failed(name, *each);
    }
  }
  const double grown = growth_of(job), grown_alone = growth_of(alone);
  if (ranks == 1) {
    return {name, Verdict::kOk, "grew by " + size_text(grown) + "; one rank has nothing to save"};
  }
  const double to_save = 16.0 * job.summary.at("parameters").get<double>() * (ranks - 1) / ranks;
  const std::string found = "grew by " + size_text(grown) + ", one rank alone by " +
                            size_text(grown_alone) + "; sharding takes away " + size_text(to_save);
  constexpr double kGatheredAndBuffers = 0.5;
  if (grown > grown_alone - kGatheredAndBuffers * to_save) {
    return {name, Verdict::kWarning, found,
            "much less is saved than is cut: is the allocator of this system another one than "
            "glibc's (LD_PRELOAD)?"};
  }
  return {name, Verdict::kOk, found};
}

Finding checkpoint_comes_back(const SmallJob& jobs, const JobEnd& job, int ranks,
                              const Flags& flags) {
  const std::string name = "checkpoint";
  const std::string remedy =
      "a run would not go on as it was: look at the disk of " + jobs.path("") + ", and report it";
  const JobEnd resumed =
      jobs.train(ranks, joined(flags, {"--resume", jobs.path("saved/step-00000010"), "--save-dir",
                                       jobs.path("saved-again")}));
  if (!resumed.is_well()) {
    return job_failed(name, resumed);
  }
  if (resumed.steps.size() != kSteps - kSavedStep) {
    return failed(name,
                  "a resume after " + std::to_string(kSavedStep) + " of " + std::to_string(kSteps) +
                      " steps runs " + std::to_string(resumed.steps.size()),
                  remedy);
  }
  double largest = 0;
  for (size_t i = 0; i < resumed.steps.size(); ++i) {
    const json& before = job.steps[kSavedStep + i];
    for (const char* key : {"loss", "grad_norm", "lr"}) {
      largest = std::max(
          largest, std::abs(resumed.steps[i].at(key).get<double>() - before.at(key).get<double>()));
    }
  }
  const std::string found = std::to_string(resumed.steps.size()) +
                            " steps after a resume differ by " + number_text(largest, 2) +
                            " from those without a break";
  if (largest != 0) {
    return failed(name, found, remedy);
  }
  return {name, Verdict::kOk, found};
}

// ---- in order

Finding or_failed(const std::string& name, const std::function<Finding()>& check) {
  try {
    return check();
  } catch (const std::exception& error) {
    return failed(name, error.what(), "report it with the output of --json");
  }
}

}  // namespace

void check_with_ranks(const std::string& program, int ranks, double timeout_s,
                      const std::function<void(const Finding&)>& tell) {
  const SmallJob jobs(program, timeout_s);
  const Flags flags =
      joined(common_flags(SmallJob::global_batch(ranks)),
             {"--steps", std::to_string(kSteps), "--save-every", std::to_string(kSavedStep)});
  const JobEnd job = jobs.train(ranks, joined(flags, {"--save-dir", jobs.path("saved")}));
  if (!job.is_well() || job.steps.size() != kSteps) {
    tell(job_failed("a job of " + of_ranks(ranks), job));
    return;
  }
  tell(or_failed("sharding", [&] { return sharding_is_real(job, ranks); }));
  tell(or_failed("gradients", [&] { return gradients_are_those_of_one_rank(jobs, ranks); }));
  tell(or_failed("loss", [&] { return loss_falls(job); }));
  tell(or_failed("memory of a rank", [&] { return memory_is_that_of_a_shard(jobs, ranks); }));
  tell(or_failed("checkpoint", [&] { return checkpoint_comes_back(jobs, job, ranks, flags); }));
}

}  // namespace fsdp2::cli
