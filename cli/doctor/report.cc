#include "cli/doctor/report.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace fsdp2::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kFailed:
      return "failed";
  }
  return "failed";
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text + " ";
}

Verdict worst_of(const Findings& findings) {
  Verdict worst = Verdict::kOk;
  for (const Finding& finding : findings) {
    worst = std::max(worst, finding.verdict);
  }
  return worst;
}

}  // namespace

std::string text_of_finding(const Finding& finding) {
  constexpr size_t kVerdict = 8, kName = 18;
  const std::string line =
      padded(word_of(finding.verdict), kVerdict) + padded(finding.name, kName) + finding.found;
  const std::string remedy =
      finding.remedy.empty()
          ? ""
          : "\n" + padded("", kVerdict) + padded("", kName) + "-> " + finding.remedy;
  return line + remedy + "\n";
}

std::string count_of_findings(const Findings& findings) {
  const auto count = [&](Verdict verdict) {
    return std::to_string(
        std::count_if(findings.begin(), findings.end(),
                      [&](const Finding& finding) { return finding.verdict == verdict; }));
  };
  const std::string warnings = count(Verdict::kWarning);
  return count(Verdict::kFailed) + " failed, " + warnings +
         (warnings == "1" ? " warning, " : " warnings, ") + count(Verdict::kOk) + " ok";
}

std::string json_of_findings(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"name", finding.name},
                    {"verdict", word_of(finding.verdict)},
                    {"found", finding.found},
                    {"remedy", finding.remedy}});
  }
  const Json report = {{"verdict", word_of(worst_of(findings))}, {"findings", list}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace);
}

bool has_failed(const Findings& findings) { return worst_of(findings) == Verdict::kFailed; }

}  // namespace fsdp2::cli
