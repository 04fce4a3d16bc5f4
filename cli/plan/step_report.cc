#include "cli/plan/step_report.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/sharding.h"

namespace fsdp2::cli {

namespace {

constexpr double kGigabyte = 1e9;  // as the rest of a plan counts

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
  const std::string windows = options.micro_batch == 1 ? " window" : " windows";
  return std::to_string(options.micro_batch) + windows + " of " + std::to_string(options.seq_len) +
         " tokens";
}

// Another set of options, by the flags that make it.
struct Alternative {
  std::string flags;
  PlanOptions options;
};

// Whether the tool takes these options together.
bool is_taken(const PlanOptions& options) {
  try {
    check_sharding(options.sharding);
    check_sharding_for_world(options.sharding, options.world_size);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

bool may_halve_moments(const PlanOptions& o) {
  const bool has_moments = o.optimizer == "adamw" || o.optimizer == "adam";
  return has_moments && o.optimizer_states == "default" && o.dtype == "fp32";
}

bool may_halve_gathers(const PlanOptions& o) {
  return o.param_dtype == "none" && o.dtype == "fp32";
}

// What costs least time comes first.
std::vector<Alternative> alternatives_to(const PlanOptions& options) {
  std::vector<Alternative> all;
  const auto add = [&](const std::string& flags, const auto& change) {
    Alternative alternative{flags, options};
    change(alternative.options);
    if (is_taken(alternative.options)) {
      all.push_back(std::move(alternative));
    }
  };
  const auto checkpointed = [](int every) {
    return [every](PlanOptions& o) {
      o.activation_checkpointing = true;
      o.recompute_every = every;
    };
  };
  add("--reshard-after-forward false",
      [](PlanOptions& o) { o.sharding.reshard_after_forward = "false"; });
  add("--reshard-after-forward true",
      [](PlanOptions& o) { o.sharding.reshard_after_forward = "true"; });
  if (!options.activation_checkpointing) {
    add("--activation-checkpointing --recompute-every 2", checkpointed(2));
  }
  if (!options.activation_checkpointing || options.recompute_every > 1) {
    add("--activation-checkpointing", checkpointed(1));
  }
  for (int64_t windows = options.micro_batch / 2; windows > 0; windows /= 2) {
    const std::string count = std::to_string(windows);
    add("--micro-batch " + count, [&](PlanOptions& o) { o.micro_batch = windows; });
    add("--micro-batch " + count + " --activation-checkpointing", [&](PlanOptions& o) {
      checkpointed(1)(o);
      o.micro_batch = windows;
    });
  }
  if (may_halve_moments(options)) {
    add("--optimizer-states bf16", [](PlanOptions& o) { o.optimizer_states = "bf16"; });
  }
  if (may_halve_gathers(options)) {
    add("--param-dtype bf16", [](PlanOptions& o) { o.param_dtype = "bf16"; });
  }
  for (int ranks = 2; ranks <= 8 && options.world_size <= kMostRanks / ranks; ranks *= 2) {
    add("--world-size " + std::to_string(options.world_size * ranks),
        [&](PlanOptions& o) { o.world_size *= ranks; });
  }
  return all;
}

// What takes least with so many ranks for each of these.
Alternative smallest(const PlanOptions& options, int ranks) {
  Alternative least{"--micro-batch 1 --activation-checkpointing", options};
  PlanOptions& o = least.options;
  o.micro_batch = 1;
  o.activation_checkpointing = true;
  o.recompute_every = 1;
  if (may_halve_moments(options)) {
    least.flags += " --optimizer-states bf16";
    o.optimizer_states = "bf16";
  }
  if (may_halve_gathers(options)) {
    least.flags += " --param-dtype bf16";
    o.param_dtype = "bf16";
  }
  if (ranks > 1) {
    o.world_size *= ranks;
    least.flags += " --world-size " + std::to_string(o.world_size);
  }
  return least;
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
  const auto most = static_cast<int64_t>(options.memory_gb * kGigabyte);
  std::vector<std::vector<std::string>> rows;
  bool some_fit = false;
  const auto add = [&](const std::string& flags, const PlannedModel& planned) {
    const int64_t bytes = planned.step_memory().peak_bytes;
    some_fit = some_fit || bytes <= most;
    rows.push_back({flags, gigabytes(bytes), bytes <= most ? "fits" : "does not fit"});
    return bytes;
  };
  add("as given", model);
  for (const Alternative& alternative : alternatives_to(options)) {
    add(alternative.flags, PlannedModel(alternative.options));
  }
  // No option is enough alone: all together, and then more ranks as long as they help.
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int ranks = 1; !some_fit && options.world_size <= kMostRanks / ranks; ranks *= 2) {
    const Alternative least = smallest(options, ranks);
    if (!is_taken(least.options)) {
      break;
    }
    const int64_t bytes = add(least.flags, PlannedModel(least.options));
    if (bytes >= before) {
      break;
    }
    before = bytes;
  }
  return "\na step in " + gigabytes(most) + " of tensors\n" + table_of(rows) +
         (some_fit ? ""
                   : "  no options of fsdp2 plan make it fit: a smaller unit may, or a shorter "
                     "sequence\n");
}

std::string reshard_report(const PlanOptions& options) {
  const Sharding& sharding = options.sharding;
  const bool reshards =
      sharding.reshard_after_forward == "default" || sharding.reshard_after_forward == "true";
  if (!reshards || (sharding.strategy != "full_shard" && sharding.strategy != "hybrid_shard")) {
    return "";  // it is not the plan's to choose
  }
  PlanOptions of_rank0 = options;  // as all ranks choose
  of_rank0.rank = 0;
  const PlannedModel model(of_rank0);
  const auto most = static_cast<int64_t>(options.memory_gb * kGigabyte);
  const int64_t before = model.gathers();
  std::string text = "\nunits that may stay gathered after forward in " + gigabytes(most) + ": ";
  try {
    const ReshardChoice choice = model.keep_gathered_within(most);
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
