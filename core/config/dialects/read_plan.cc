#include "core/config/dialects/read_plan.h"

#include "core/config/dialects/dialects.h"
#include "core/config/document.h"

namespace fsdp2::config {

Plan read_plan(const PlanRequest& request) {
  Node root;
  root.kind = Node::Kind::kMap;
  if (!request.file.empty()) {
    root = read_yaml_file(request.file);
  }
  for (const std::string& assignment : request.sets) {
    set_in(&root, assignment);
  }
  Plan plan;
  apply_plain(root, "", &plan);
  return plan;
}

}  // namespace fsdp2::config
