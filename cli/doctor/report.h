// Findings for people and for programs.
#pragma once

#include <string>

#include "cli/doctor/finding.h"

namespace fsdp2::cli {

// A line each, with the remedy below it.
std::string text_of_finding(const Finding& finding);
// "1 failed, 2 warnings, 9 ok"
std::string count_of_findings(const Findings& findings);
// {"verdict": "failed", "findings": [{"name", "verdict", "found", "remedy"}, ...]}
std::string json_of_findings(const Findings& findings);

bool has_failed(const Findings& findings);

}  // namespace fsdp2::cli
