#include "core/plan/reshard_choice.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/group/param_group.h"
#include "core/plan/step_memory.h"
#include "core/plan/unit_plan.h"

namespace fsdp2::plan {

namespace {

struct Candidate {
  std::shared_ptr<fsdp::Unit> unit;
  double received_share;  // bytes that one gather receives, for each that it makes
  std::optional<bool> set_before;
};

// In the order in which they are to be kept.
std::vector<Candidate> candidates_below(fsdp::Unit& root) {
  const std::vector<std::shared_ptr<fsdp::Unit>> units = root.units();
  fsdp::Tree& tree = root.tree();
  std::vector<Candidate> candidates;
  for (size_t i = units.size(); i-- > 1;) {  // 0 is the root
    const fsdp::ParamGroup* group = units[i]->group();
    if (group == nullptr) {
      continue;
    }
    const UnitPlan plan = plan_unit(root.scheduler().members()[tree.member(units[i]->index())]);
    if (plan.gather.bytes > 0 && plan.gathered_bytes > 0) {
      candidates.push_back(
          {units[i],
           static_cast<double>(plan.gather.bytes) / static_cast<double>(plan.gathered_bytes),
           group->settings().reshard_after_forward});
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.received_share > b.received_share; });
  return candidates;
}

void keep_first(const std::vector<Candidate>& candidates, size_t count) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].unit->set_reshard_after_forward(i >= count, /*recurse=*/false);
  }
}

void restore(const std::vector<Candidate>& candidates) {
  for (const Candidate& candidate : candidates) {
    candidate.unit->set_reshard_after_forward(candidate.set_before, /*recurse=*/false);
  }
}

// The counts of kept units that are tried before a step is said not to fit. More kept units take
// more memory, but the first few may take less: backward begins with the last units, at a moment
// when a step often holds most, and then neither gathers them nor has buffers for that.
size_t counts_to_try(size_t candidates, int prefetch) {
  return std::min(candidates, static_cast<size_t>(std::max(prefetch, 0)) + 2);
}

// peak_with(count): bytes of a step in which the first `count` candidates stay gathered.
template <typename PeakWith>
ReshardChoice choose(size_t candidates, int prefetch, int64_t budget_bytes,
                     const PeakWith& peak_with) {
  ReshardChoice choice;
  choice.candidates = static_cast<int64_t>(candidates);
  choice.resharded_peak_bytes = choice.peak_bytes = peak_with(0);
  int64_t least = choice.peak_bytes;
  size_t fits = 0;
  for (const size_t last = counts_to_try(candidates, prefetch);
       choice.peak_bytes > budget_bytes && fits < last;) {
    choice.peak_bytes = peak_with(++fits);
    least = std::min(least, choice.peak_bytes);
  }
  FSDP2_CHECK(choice.peak_bytes <= budget_bytes, Code::kOutOfMemory,
              "a step takes at least {} bytes, whichever units reshard after forward, expected at "
              "most {}: allow more, or plan a smaller step",
              least, budget_bytes);
  size_t beyond = candidates + 1;
  while (beyond - fits > 1) {
    const size_t middle = fits + (beyond - fits) / 2;
    const int64_t peak = peak_with(middle);
    if (peak <= budget_bytes) {
      fits = middle;
      choice.peak_bytes = peak;
    } else {
      beyond = middle;
    }
  }
  choice.kept = static_cast<int64_t>(fits);
  return choice;
}

}  // namespace

ReshardChoice choose_reshard(fsdp::Unit& root, const nn::Values& inputs, int64_t micro_batches,
                             const PlanOptions& options, int64_t budget_bytes) {
  FSDP2_CHECK(root.mesh().position() == 0, Code::kInvalidArgument,
              "expected the plan of rank 0, which holds no less than any other, so that all ranks "
              "choose alike; found {}",
              root.mesh().to_string());
  const int64_t optimizer = make_step_plan(root, options).optimizer;
  const std::vector<Candidate> candidates = candidates_below(root);
  try {
    const auto peak_with = [&](size_t count) {
      keep_first(candidates, count);
      return rehearse_step(root, inputs, micro_batches).total() + optimizer;
    };
    const ReshardChoice choice =
        choose(candidates.size(), root.policy().prefetch, budget_bytes, peak_with);
    keep_first(candidates, static_cast<size_t>(choice.kept));
    return choice;
  } catch (...) {
    restore(candidates);
    throw;
  }
}

}  // namespace fsdp2::plan
