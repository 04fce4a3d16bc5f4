#include "cli/plan/step_report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "core/config/checks/sharding_checks.h"

namespace fsdp2::cli {

namespace {

std::string gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f GB", static_cast<double>(bytes) / kGigabyte);
  return text;
}

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    text += "  " + row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i) {
      text += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += "\n";
  }
  return text;
}

std::string step_text(const PlanOptions& options) {
  const TrainOptions& run = options.run;
  const std::string windows = run.micro_batch == 1 ? " window" : " windows";
  const std::string images = options.images == 0
                                 ? ""
                                 : ", each with " + std::to_string(options.images) +
                                       (options.images == 1 ? " image of " : " images of ") +
                                       options.image_size + " pixels";
  return std::to_string(run.micro_batch) + windows + " of " + std::to_string(run.seq_len) +
         " tokens" + images;
}

// Another set of options, by the flags that make it.
struct Alternative {
  std::string flags;
  PlanOptions options;
};

using Change = std::function<void(TrainOptions&)>;

// What may make a step smaller. Those of one kind exclude each other.
struct Saving {
  enum class Kind {
    kBatch,
    kRecomputation,
    kLoss,
    kMlps,
    kReductions,
    kSequences,
    kGathers,
    kUpdates,
    kMoments,
    kDtype
  };

  Kind kind;
  std::string flags;
  Change change;
};

// Whether the tool takes these options together.
bool is_taken(const PlanOptions& options) {
  try {
    check_sharding(options.run.sharding());
    check_sharding_for_world(options.run.sharding(), options.run.world_size);
    return options.run.micro_batch > 0;
  } catch (const UsageError&) {
    return false;
  }
}

bool may_halve_moments(const TrainOptions& run) {
  const bool has_moments = run.optimizer == "adamw" || run.optimizer == "adam";
  return has_moments && run.optimizer_states == "default" && run.dtype == "fp32";
}

bool may_halve_gathers(const TrainOptions& run) {
  return run.param_dtype == "none" && run.dtype == "fp32";
}

bool may_update_in_backward(const PlanOptions& options) {
  const TrainOptions& file = options.file;
  return !options.run.update_in_backward && options.run.optimizer != "muon" && file.clip == 0 &&
         file.loss_scale == 0 && file.not_finite != "skip" && !file.cuda_graph;
}

Change checkpointed(int every) {
  return [every](TrainOptions& run) {
    run.activation_checkpointing = true;
    run.recompute_every = every;
  };
}

// The flags also where a run of the options given recomputes some layers already.
Saving recomputation(const TrainOptions& run) {
  const std::string every = run.recompute_every > 1 ? " --recompute-every 1" : "";
  return {Saving::Kind::kRecomputation, "--activation-checkpointing" + every, checkpointed(1)};
}

// What costs least time comes first.
std::vector<Saving> savings_of(const PlanOptions& options) {
  using Kind = Saving::Kind;
  const TrainOptions& run = options.run;
  constexpr int64_t kChunk = 1024;
  constexpr int64_t kTiles = 4;
  std::vector<Saving> all;
  const auto add = [&](Kind kind, const std::string& flags, Change change) {
    all.push_back({kind, flags, std::move(change)});
  };
  if (may_update_in_backward(options)) {
    add(Kind::kUpdates, "--update-in-backward",
        [](TrainOptions& r) { r.update_in_backward = true; });
  }
  add(Kind::kGathers, "--reshard-after-forward false",
      [](TrainOptions& r) { r.reshard_after_forward = "false"; });
  add(Kind::kGathers, "--reshard-after-forward true",
      [](TrainOptions& r) { r.reshard_after_forward = "true"; });
  if (run.accum_sync != "every" && run.grad_accum > 1) {
    add(Kind::kReductions, "--accum-sync every", [](TrainOptions& r) { r.accum_sync = "every"; });
  }
  if (run.chunked_loss == 0 && run.micro_batch * run.seq_len > kChunk) {
    add(Kind::kLoss, "--chunked-loss " + std::to_string(kChunk),
        [=](TrainOptions& r) { r.chunked_loss = kChunk; });
  }
  if (run.mlp_tiles == 0) {
    add(Kind::kMlps, "--mlp-tiles " + std::to_string(kTiles),
        [=](TrainOptions& r) { r.mlp_tiles = kTiles; });
  }
  if (!run.activation_checkpointing) {
    add(Kind::kRecomputation, "--activation-checkpointing --recompute-every 2", checkpointed(2));
  }
  if (!run.activation_checkpointing || run.recompute_every > 1) {
    all.push_back(recomputation(run));
  }
  for (int64_t windows = run.micro_batch / 2; windows > 0; windows /= 2) {
    add(Kind::kBatch, "--micro-batch " + std::to_string(windows),
        [=](TrainOptions& r) { r.micro_batch = windows; });
  }
  for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
    if (ranks > run.ulysses_size && run.world_size % ranks == 0 && !options.file.cuda_graph) {
      add(Kind::kSequences, "--ulysses-size " + std::to_string(ranks),
          [=](TrainOptions& r) { r.ulysses_size = ranks; });
    }
  }
  if (may_halve_moments(run)) {
    add(Kind::kMoments, "--optimizer-states bf16",
        [](TrainOptions& r) { r.optimizer_states = "bf16"; });
  }
  if (may_halve_gathers(run)) {
    add(Kind::kDtype, "--param-dtype bf16", [](TrainOptions& r) { r.param_dtype = "bf16"; });
  }
  return all;
}

Alternative with(const PlanOptions& options, const std::vector<Saving>& savings) {
  Alternative made{"", options};
  for (const Saving& saving : savings) {
    made.flags += (made.flags.empty() ? "" : " ") + saving.flags;
    saving.change(made.options.run);
  }
  return made;
}

// Whether that is what options do to a model that does not take them, as sequences that its heads
// cannot share, or tiles of MLPs that it has not.
bool is_refusal(const Failure& failure) {
  return failure.status() == FSDP2_E_INVALID_ARGUMENT || failure.status() == FSDP2_E_UNSUPPORTED ||
         failure.status() == FSDP2_E_NOT_FOUND;
}

// The bytes of a step; nothing for options that the model does not take.
std::optional<int64_t> bytes_of(const PlanOptions& options) {
  if (!is_taken(options)) {
    return std::nullopt;
  }
  try {
    return PlannedModel(options).step_memory().peak_bytes;
  } catch (const Failure& failure) {
    if (!is_refusal(failure)) {
      throw;
    }
    return std::nullopt;
  }
}

// A table of what was tried.
class Trials {
 public:
  explicit Trials(double memory_gb) : most_(static_cast<int64_t>(memory_gb * kGigabyte)) {}

  void add(const std::string& flags, int64_t bytes) {
    some_fit_ = some_fit_ || bytes <= most_;
    rows_.push_back({flags, gigabytes(bytes), bytes <= most_ ? "fits" : "does not fit"});
  }
  std::optional<int64_t> add(const Alternative& alternative) {
    const std::optional<int64_t> bytes = bytes_of(alternative.options);
    if (bytes) {
      add(alternative.flags, *bytes);
    }
    return bytes;
  }

  bool some_fit() const { return some_fit_; }
  int64_t most() const { return most_; }
  std::string to_text() const { return table_of(rows_); }

 private:
  const int64_t most_;
  bool some_fit_ = false;
  std::vector<std::vector<std::string>> rows_;
};

// What takes least of each kind, if that is less than what is given.
class BestOfKinds {
 public:
  explicit BestOfKinds(int64_t given) : given_(given) {}

  void add(const Saving& saving, int64_t bytes) {
    const auto best = best_.find(saving.kind);
    if (bytes < (best == best_.end() ? given_ : best->second.first)) {
      best_[saving.kind] = {bytes, saving};
    }
  }
  std::vector<Saving> all() const {
    std::vector<Saving> savings;
    for (const auto& [kind, best] : best_) {
      savings.push_back(best.second);
    }
    return savings;
  }

 private:
  const int64_t given_;
  std::map<Saving::Kind, std::pair<int64_t, Saving>> best_;
};

Alternative with_ranks(const PlanOptions& options, int64_t factor) {
  Alternative more{"--world-size " + std::to_string(options.run.world_size * factor), options};
  more.options.run.world_size *= factor;
  return more;
}

}  // namespace

std::string step_report(const PlannedModel& model, const PlanOptions& options) {
  const fsdp2_plan_memory memory = model.step_memory();
  return "\nmemory of this rank in a step on CPUs, " + step_text(options) + ", when it is most\n" +
         table_of(
             {{"shards, gathered parameters, gradients, buffers", gigabytes(memory.model_bytes)},
              {"optimizer", gigabytes(memory.optimizer_bytes)},
              {"activations and what is being computed", gigabytes(memory.activation_bytes)},
              {"together", gigabytes(memory.peak_bytes)}});
}

std::string step_json(const PlannedModel& model) {
  const fsdp2_plan_memory memory = model.step_memory();
  const nlohmann::ordered_json line = {{"event", "plan"},
                                       {"peak_bytes", memory.peak_bytes},
                                       {"model_bytes", memory.model_bytes},
                                       {"optimizer_bytes", memory.optimizer_bytes},
                                       {"activation_bytes", memory.activation_bytes}};
  return line.dump();
}

std::string fitting_report(const PlannedModel& model, const PlanOptions& options) {
  constexpr int64_t kMostFactor = 8;
  Trials trials(options.memory_gb);
  const int64_t given = model.step_memory().peak_bytes;
  trials.add("as given", given);
  BestOfKinds best(given);
  for (const Saving& saving : savings_of(options)) {
    if (const auto bytes = trials.add(with(options, {saving}))) {
      best.add(saving, *bytes);
    }
    if (saving.kind == Saving::Kind::kBatch && !options.run.activation_checkpointing) {
      trials.add(with(options, {saving, recomputation(options.run)}));
    }
  }
  for (int64_t factor = 2; factor <= kMostFactor && options.run.world_size <= kMostRanks / factor;
       factor *= 2) {
    trials.add(with_ranks(options, factor));
  }
  // No option is enough alone: all that save together, and then more ranks as long as they help.
  const Alternative together = with(options, best.all());
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t factor = together.flags.empty() ? 2 : 1;
       !trials.some_fit() && options.run.world_size <= kMostRanks / factor; factor *= 2) {
    Alternative least = factor == 1 ? together : with_ranks(together.options, factor);
    least.flags = factor == 1 ? together.flags : together.flags + " " + least.flags;
    const std::optional<int64_t> bytes = trials.add(least);
    if (!bytes || *bytes >= before) {
      break;
    }
    before = *bytes;
  }
  return "\na step in " + gigabytes(trials.most()) + " of tensors\n" + trials.to_text() +
         (trials.some_fit() ? ""
                            : "  no options of fsdp2 plan make it fit: a smaller unit may, or a "
                              "shorter sequence\n");
}

std::string reshard_report(const PlanOptions& options) {
  const TrainOptions& run = options.run;
  const bool reshards =
      run.reshard_after_forward == "default" || run.reshard_after_forward == "true";
  const bool is_whole = run.strategy == "full_shard" || run.strategy == "hybrid_shard";
  if (!reshards || !is_whole) {
    return "";  // it is not the plan's to choose
  }
  PlanOptions of_rank0 = options;  // as all ranks choose
  of_rank0.rank = 0;
  const PlannedModel model(of_rank0);
  const auto most = static_cast<int64_t>(options.memory_gb * kGigabyte);
  const int64_t before = model.gathers();
  std::string text = "\nunits that may stay gathered after forward in " + gigabytes(most) + ": ";
  try {
    const client::ReshardChoice choice = model.keep_gathered_within(most);
    text += std::to_string(choice.plan.n_kept) + " of " + std::to_string(choice.plan.n_candidates) +
            "\n";
    for (const std::string& name : choice.kept) {
      text += "  " + name + "\n";
    }
    if (choice.kept.empty()) {
      return text;
    }
    return text + "  a step then takes " + gigabytes(choice.plan.peak_bytes) + " and " +
           std::to_string(model.gathers()) + " gathers of units, not " + std::to_string(before) +
           ": fsdp2 train --reshard-budget-gb " + number_text(options.memory_gb) + "\n";
  } catch (const Failure& failure) {
    if (failure.status() != FSDP2_E_OUT_OF_MEMORY) {
      throw;
    }
    return text + "none\n";
  }
}

}  // namespace fsdp2::cli
