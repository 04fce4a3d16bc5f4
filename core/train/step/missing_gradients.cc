#include "core/train/step/missing_gradients.h"

#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/base/text.h"

namespace fsdp2::train {

namespace {

// A caller who holds reductions back has gradients that no shard shows yet.
bool is_reduced(const fsdp::ParamGroup& group) {
  return group.settings().requires_gradient_sync && group.settings().requires_all_reduce;
}

}  // namespace

void warn_of_missing_gradients(
    fsdp::Unit& root, const std::function<bool(const fsdp::ShardedParam& param)>& has_gradient) {
  constexpr size_t kNamesInMessage = 16;
  if (root.mesh().team().rank() != 0) {
    return;
  }
  std::vector<std::string> names;
  for (const auto& unit : root.units()) {
    if (unit->group() == nullptr || !is_reduced(*unit->group())) {
      continue;
    }
    for (const fsdp::ShardedParam* param : unit->group()->params()) {
      if (param->requires_grad() && !has_gradient(*param)) {
        names.push_back(param->name());
      }
    }
  }
  if (!names.empty()) {
    log(LogLevel::kWarning, "step",
        "got no gradient in the first step, and no update, although not frozen: {}",
        list_some(names, kNamesInMessage));
  }
}

}  // namespace fsdp2::train
