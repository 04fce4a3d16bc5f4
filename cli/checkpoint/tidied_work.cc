#include "cli/checkpoint/tidied_work.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iostream>

#include "cli/end_process.h"
#include "cli/interruption.h"
#include "cli/library.h"
#include "core/base/temporary_name.h"

namespace fsdp2::cli {

namespace {

// Those that end this process while it waits, and SIGCHLD. What is ignored, as by nohup, stays so.
sigset_t awaited_signals() {
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction now{};
    sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) {
      sigaddset(&awaited, number);
    }
  }
  return awaited;
}

// The child's status.
int wait_for(pid_t child, const sigset_t& awaited) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    const int number = sigwaitinfo(&awaited, nullptr);
    if (number > 0 && number != SIGCHLD) {
      kill(child, number);
    }
  }
  return status;
}

}  // namespace

int tidied(const std::string& path, const std::function<int()>& work) {
  signal(SIGCHLD, SIG_DFL);  // of an ignored one nobody hears
  const sigset_t awaited = awaited_signals();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &awaited, &before);
  std::fflush(nullptr);
  std::cerr.flush();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) {
    throw Failure(std::string("cannot start a process to work in: ") + std::strerror(errno));
  }
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
      _exit(1);  // it died before the line above
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    end_process(work());
  }
  const int status = wait_for(child, awaited);
  if (WIFSIGNALED(status)) {
    remove_temporaries(path, child);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFSIGNALED(status)) {
    end_by_signal(WTERMSIG(status));
  }
  return WEXITSTATUS(status);
}

}  // namespace fsdp2::cli
