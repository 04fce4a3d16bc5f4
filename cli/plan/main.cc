// fsdp2-plan, which `fsdp2 plan` becomes: one process plays one rank of a job of any size.
#include <iostream>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/end_process.h"
#include "cli/plan/options.h"
#include "cli/plan/planned_model.h"
#include "cli/plan/step_report.h"

namespace fsdp2::cli {
namespace {

void plan(const PlanOptions& options) {
  for (const std::string& key : options.left_out) {
    std::cerr << "fsdp2 plan: the plan leaves out " << key << std::endl;
  }
  const PlannedModel model(options);
  if (options.json) {
    std::cout << step_json(model) << std::endl;
    return;
  }
  std::cout << model.describe();
  if (options.run.seq_len > 0) {
    std::cout << step_report(model, options);
  }
  if (options.memory_gb > 0) {
    std::cout << fitting_report(model, options) << reshard_report(options);
  }
  std::cout << std::flush;
}

int run(const std::vector<std::string>& arguments) {
  return exit_code_of("fsdp2 plan", [&] {
    PlanOptions options;
    if (parse_plan_options(arguments, &options)) {
      plan(options);
    }
    return 0;
  });
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::run({argv + 1, argv + argc}));
}
