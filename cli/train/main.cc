// fsdp2-train, which `fsdp2 train` becomes.
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/end_process.h"
#include "cli/library.h"
#include "cli/train/complaint.h"
#include "cli/train/flags/options.h"
#include "cli/train/library_log.h"
#include "cli/train/setup.h"
#include "cli/train/stop_signal.h"
#include "cli/train/trainer.h"

namespace fsdp2::cli {
namespace {

// Prints "fsdp2 0.1", then what the library says about LibTorch and this machine.
int print_version() {
  const std::string text = text_of(fsdp2_runtime_describe);
  const std::string key = "version: ";
  const bool known = text.rfind(key, 0) == 0;
  std::cout << "fsdp2 " << (known ? text.substr(key.size()) : "\n" + text) << std::flush;
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  try {
    config::Plan plan;
    switch (parse_train_options(arguments, &plan)) {
      case Request::kHelpPrinted:
        return 0;
      case Request::kPrintConfig:
        if (rank_to_show().empty() || rank_to_show() == "0") {
          std::cout << plan.text() << std::flush;
        }
        return 0;
      case Request::kVersion:
        return print_version();
      case Request::kTrain:
        watch_stop_signals();
        let_writes_fail();
        show_library_log(plan.options.log);
        return train(plan);
    }
    return 0;
  } catch (const UsageError& error) {
    complain(rank_to_show(), error.what());
    return kUsageExitCode;
  } catch (const std::exception& error) {
    complain(rank_to_show(), error.what());
    return 1;
  }
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::end_process(fsdp2::cli::run({argv + 1, argv + argc}));
}
