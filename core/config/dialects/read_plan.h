// The plan of a run, from a file of any dialect and assignments to its keys.
#pragma once

#include <string>
#include <vector>

#include "core/config/document.h"
#include "core/config/plan.h"

namespace fsdp2::config {

struct PlanRequest {
  std::string file;               // "": none, and the assignments alone count
  std::string role;               // of a file that has several
  std::vector<std::string> sets;  // "path.to.key=value", in the file's own keys
  Purpose purpose = Purpose::kTrain;
};

// These throw ConfigError.
Plan plan_of(const Node& root, const std::string& role, Purpose purpose = Purpose::kTrain);
Plan read_plan(const PlanRequest& request);
// request.file: what messages call the text.
Plan plan_in(const std::string& text, const PlanRequest& request);

}  // namespace fsdp2::config
