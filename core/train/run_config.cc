#include "core/train/run_config.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/resolve.h"

namespace fsdp2::train {

namespace {

constexpr char kPlanName[] = "plan";

template <typename Action>
auto with_core_errors(const Action& action) {
  try {
    return action();
  } catch (const config::ConfigError& error) {
    fail(Code::kInvalidArgument, "{}", error.what());
  }
}

config::Plan read(const std::string& plan) {
  return with_core_errors([&] { return config::plan_in(plan, {kPlanName, "", {}}); });
}

}  // namespace

std::string lower_run_config(const RunConfigRequest& request) {
  return with_core_errors([&] {
    config::Plan plan = config::plan_in(request.text, {request.name, request.role, request.sets});
    config::leave_batch_to_ranks(&plan);
    if (request.world_size > 0) {
      config::resolve_for_world(&plan, request.world_size);
    }
    std::string text = plan.text();
    for (const std::string& note : plan.notes) {
      text += "# " + note + "\n";
    }
    return text;
  });
}

std::string value_in_plan(const std::string& plan, const std::string& key) {
  config::Plan known = read(plan);
  std::string name = key;
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<std::string> names;
  for (const config::Key& candidate : config::train_keys(&known.options)) {
    if (candidate.name == name) {
      return candidate.value_text();
    }
    names.push_back(candidate.name);
  }
  const std::string meant = nearest(name, names);
  fail(Code::kNotFound, "key: there is no {}{}", key,
       meant.empty() ? "" : "; did you mean " + meant + "?");
}

std::string shared_in_plan(const std::string& plan) { return read(plan).shared_text(); }

}  // namespace fsdp2::train
