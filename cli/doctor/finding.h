// What `fsdp2 doctor` has looked at, and what it thinks of it.
#pragma once

#include <string>
#include <vector>

namespace fsdp2::cli {

enum class Verdict { kOk, kWarning, kFailed };

struct Finding {
  std::string name;  // of what was looked at: "shared memory"
  Verdict verdict = Verdict::kOk;
  std::string found = {};
  std::string remedy = {};  // unless all is well
};

using Findings = std::vector<Finding>;

}  // namespace fsdp2::cli
