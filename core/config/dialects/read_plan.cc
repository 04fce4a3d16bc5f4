#include "core/config/dialects/read_plan.h"

#include "core/config/config_error.h"
#include "core/config/dialects/dialects.h"
#include "core/config/resolve.h"

namespace fsdp2::config {

namespace {

Node empty_root() {
  Node root;
  root.kind = Node::Kind::kMap;
  root.origin = "--set";
  return root;
}

Plan plan_with_sets(Node root, const PlanRequest& request) {
  for (const std::string& assignment : request.sets) {
    set_in(&root, assignment);
  }
  return plan_of(root, request.role, request.purpose);
}

bool is_given(const Node& map, const std::string& key) {
  const Node* value = map.find(key);
  return value != nullptr && value->kind != Node::Kind::kNull;
}

// Dialects are recognised by their keys.
void apply_dialect(const Node& root, const std::string& role, Plan* plan) {
  if (is_roll(root)) {
    return apply_roll(root, role, plan);
  }
  if (!role.empty()) {
    throw ConfigError("--role " + role + ": the configuration has no roles");
  }
  if (is_mm(root)) {
    return apply_mm(root, plan);
  }
  if (is_mm_legacy(root)) {
    return apply_mm_legacy(root, plan);
  }
  if (is_simple(root)) {
    return apply_simple(root, plan);
  }
  apply_plain(root.without({kOwnSection}), "", plan);
}

}  // namespace

Plan plan_of(const Node& root, const std::string& role, Purpose purpose) {
  Plan plan;
  plan.purpose = purpose;
  apply_dialect(root, role, &plan);
  const Node* own = root.find(kOwnSection);
  if (own != nullptr) {
    apply_plain(*own, std::string(kOwnSection) + ".", &plan);
    if (is_given(*own, "steps") && !is_given(*own, "epochs")) {
      prefer_steps(&plan);
    }
  }
  return plan;
}

Plan read_plan(const PlanRequest& request) {
  return plan_with_sets(request.file.empty() ? empty_root() : read_yaml_file(request.file),
                        request);
}

Plan plan_in(const std::string& text, const PlanRequest& request) {
  return plan_with_sets(read_yaml_map(text, request.file), request);
}

}  // namespace fsdp2::config
