#include "cli/doctor/command.h"

#include <functional>
#include <iostream>

#include "cli/arguments.h"
#include "cli/doctor/job_checks.h"
#include "cli/doctor/libraries.h"
#include "cli/doctor/machine.h"
#include "cli/doctor/report.h"

namespace fsdp2::cli {

namespace {

constexpr int kMostRanks = 256;
constexpr double kMostSeconds = 86400;

struct DoctorOptions {
  int32_t ranks = 0;
  bool json = false;
  double timeout_s = 300;
};

constexpr char kFooter[] =
    "Each line has a verdict: ok, warning or failed, the latter two with a remedy. With --ranks, "
    "a\n"
    "small model trains some steps on so many ranks and on one, which takes about a minute:\n"
    "sharding is real, gradients are those of one rank, the loss falls, memory is that of a "
    "shard,\n"
    "and a checkpoint brings back what was saved. The exit code is 1 if anything has failed.\n\n"
    "  fsdp2 doctor --ranks 2";

bool parse(const std::vector<std::string>& arguments, DoctorOptions* options) {
  CLI::App app("Looks at this machine, and at jobs on it.", "fsdp2 doctor");
  set_style(app, "[OPTIONS]");
  add_number(app, "--ranks", &options->ranks, "Check a job of so many ranks as well (0: none)")
      ->option_text("N (0)");
  add_number(app, "--timeout-s", &options->timeout_s, "Seconds that each job of a check may take")
      ->option_text("SECONDS (300)");
  app.add_flag("--json", options->json, "Print the findings as JSON, once all are there");
  app.footer(kFooter);
  if (!parse_arguments(app, arguments)) {
    return false;
  }
  require_within("--ranks", options->ranks, 0, kMostRanks);
  require(options->timeout_s > 0 && options->timeout_s <= kMostSeconds,
          "--timeout-s must be more than 0 and at most a day");
  return true;
}

}  // namespace

int run_doctor(const std::vector<std::string>& arguments, const std::string& program) {
  DoctorOptions options;
  if (!parse(arguments, &options)) {
    return 0;
  }
  Findings findings;
  const auto tell = [&](const Finding& finding) {
    findings.push_back(finding);
    if (!options.json) {
      std::cout << text_of_finding(finding) << std::flush;
    }
  };
  const std::string trainer = program + "-train";
  for (const auto& look :
       {std::function<Findings()>([&] { return look_at_libraries(trainer); }),
        std::function<Findings()>([&] { return look_at_gpus(trainer); }),
        std::function<Findings()>(look_at_machine), std::function<Findings()>(look_at_limits)}) {
    for (const Finding& finding : look()) {
      tell(finding);
    }
  }
  if (options.ranks > 0) {
    check_with_ranks(program, options.ranks, options.timeout_s, tell);
  }
  std::cout << (options.json ? json_of_findings(findings) : count_of_findings(findings))
            << std::endl;
  return has_failed(findings) ? 1 : 0;
}

}  // namespace fsdp2::cli
