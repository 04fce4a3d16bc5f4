// The fsdp2 command. It starts at once because it does not load LibTorch: a command that needs
// LibTorch is a program of its own beside this one, fsdp2-<command>, as with git.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <system_error>
#include <vector>

#include "cli/arguments.h"
#include "cli/doctor/command.h"
#include "cli/fit/command.h"
#include "cli/interruption.h"
#include "cli/machine/process_limit.h"
#include "cli/machine/size_text.h"
#include "cli/run/command.h"
#include "cli/run/launcher.h"
#include "cli/run/options.h"
#include "cli/standard_streams.h"
#include "cli/train/flags/options.h"
#include "core/base/nearest.h"
#include "core/config/checks/option_checks.h"

namespace fsdp2::cli {
namespace {

constexpr char kHelp[] =
    "fsdp2: fully sharded training over many processes\n"
    "\n"
    "Usage: fsdp2 COMMAND [OPTIONS]\n"
    "\n"
    "  run       start the ranks of a job on this node and look after them\n"
    "  train     train a language model, on one rank or on all ranks of a job\n"
    "  generate  continue prompts with a language model\n"
    "  score     say how likely a language model finds the tokens of a file\n"
    "  tokenize  write the tokens of a text or of records to a file\n"
    "  plan      work out the memory and traffic of a job of any size, in one process\n"
    "  fit       find the largest micro batch that fits into memory\n"
    "  bench     measure training on this machine's CPUs against their peak\n"
    "  inspect   list what a checkpoint holds, and verify it\n"
    "  convert   write a checkpoint in another format\n"
    "  doctor    look at this machine, and at jobs on it, with remedies\n"
    "\n"
    "  fsdp2 COMMAND --help   the options of a command\n"
    "  fsdp2 --version        the versions of this program and of LibTorch\n"
    "\n"
    "  fsdp2 run --nproc-per-node 2 -- fsdp2 train --model DIR --text book.txt --steps 100\n";

// Those that are programs of their own.
const std::vector<std::string> kPrograms = {"train", "generate", "score",   "tokenize",
                                            "plan",  "bench",    "inspect", "convert"};

// Whether the ranks are to run `fsdp2 train` of this installation.
bool runs_own_trainer(const std::vector<std::string>& command) {
  std::error_code error;
  return command.size() >= 2 && command[1] == "train" &&
         std::filesystem::equivalent(find_command(command[0]), own_path(), error);
}

// A mistake in the arguments that all ranks share is told once, here, before any of them starts.
// False: what was asked for has been printed.
bool check_trainer(const RunOptions& job) {
  config::Plan plan;
  switch (parse_train_options({job.command.begin() + 2, job.command.end()}, &plan)) {
    case Request::kHelpPrinted:
      return false;
    case Request::kPrintConfig:
      std::cout << plan.text() << std::flush;
      return false;
    case Request::kVersion:
      return true;
    case Request::kTrain:
      settle_for_world(&plan, job.world_size());
      return true;
  }
  return true;
}

int run(const std::vector<std::string>& arguments) {
  RunOptions options;
  bool starts = false;
  const int parsed = exit_code_of("fsdp2 run", [&] {
    starts = parse_run_options(arguments, &options);
    return 0;
  });
  if (starts && runs_own_trainer(options.command)) {
    const int checked = exit_code_of("fsdp2 train", [&] {
      starts = check_trainer(options);
      return 0;
    });
    if (checked != 0) {
      return checked;
    }
  }
  return starts ? launch(options) : parsed;
}

// A write beyond ulimit -f fails, so that the command says what it could not write and removes what
// it has begun. Programs that this one becomes and starts inherit that.
void let_large_writes_fail() { signal(SIGXFSZ, SIG_IGN); }

// Becomes fsdp2-<name>, which is linked to LibTorch.
int hand_over(const std::string& name, const std::vector<std::string>& arguments) {
  const double address_space = soft_limit(RLIMIT_AS);
  if (address_space < kLeastAddressSpace) {
    std::cerr << "fsdp2: a process may map " << size_text(address_space)
              << " (ulimit -v), and LibTorch maps " << size_text(kLeastAddressSpace)
              << " before a program begins: raise the limit" << std::endl;
    return 1;
  }
  const std::string path = own_path();
  const std::string program = path.substr(0, path.rfind('/') + 1) + "fsdp2-" + name;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  std::cerr << "fsdp2: " << program << ": " << std::strerror(errno) << "; it belongs beside fsdp2"
            << std::endl;
  return 127;
}

int main(std::vector<std::string> arguments) {
  const std::string command = arguments.empty() ? "--help" : arguments.front();
  if (command == "help" && arguments.size() > 1) {
    return main({arguments[1], "--help"});
  }
  if (command == "--help" || command == "-h" || command == "help") {
    std::cout << kHelp << std::flush;
    return arguments.empty() ? kUsageExitCode : 0;
  }
  if (command == "--version") {
    return hand_over("train", {"--version"});
  }
  arguments.erase(arguments.begin());
  if (command == "run") {
    return run(arguments);
  }
  let_large_writes_fail();
  if (command == "fit" || command == "doctor") {
    note_interruptions();
    return exit_code_of("fsdp2 " + command, [&] {
      return command == "fit" ? run_fit(arguments, own_path()) : run_doctor(arguments, own_path());
    });
  }
  if (std::find(kPrograms.begin(), kPrograms.end(), command) != kPrograms.end()) {
    return hand_over(command, arguments);
  }
  std::vector<std::string> commands = {"run", "fit", "doctor", "--help", "--version"};
  commands.insert(commands.end(), kPrograms.begin(), kPrograms.end());
  const std::string meant = fsdp2::nearest(command, commands);
  std::cerr << "fsdp2: unknown command '" << command << "'"
            << (meant.empty() ? " (see fsdp2 --help)" : "; did you mean " + meant + "?")
            << std::endl;
  return kUsageExitCode;
}

}  // namespace
}  // namespace fsdp2::cli

int main(int argc, char** argv) {
  fsdp2::cli::hold_standard_streams();
  std::error_code error;
  static_cast<void>(std::filesystem::current_path(error));
  if (error) {  // MKL would end the process
    std::cerr << "fsdp2: the current directory cannot be used: " << error.message()
              << "; change to another\n";
    return 1;
  }
  return fsdp2::cli::exit_code_once_printed(fsdp2::cli::main({argv + 1, argv + argc}));
}
