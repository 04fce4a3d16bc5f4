// Starts one rank.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace fsdp2::cli {

struct RankCommand {
  std::string file;
  std::vector<std::string> arguments;  // the first is the command's name
  std::vector<std::string> environment;
  const cpu_set_t* cores = nullptr;  // null: those of the launcher
  bool inherits_stdin = false;       // else its standard input is empty
  sigset_t signals;                  // blocked in the rank
};

struct RankProcess {
  pid_t pid = 0;
  int out = -1;  // the rank's standard output and standard error, to be read without blocking
  int err = -1;
};

// Starts the rank in a process group of its own; it is killed if the launcher dies. Throws
// std::system_error.
RankProcess start_rank(const RankCommand& command);

}  // namespace fsdp2::cli
