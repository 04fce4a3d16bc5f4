#include "cli/run/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace fsdp2::cli {

namespace {

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot make a pipe for a rank's output");
  }
  return ends;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    all.push_back(const_cast<char*>(text.c_str()));
  }
  all.push_back(nullptr);
  return all;
}

void complain(const char* what, const char* name) {
  const char* const reason = std::strerror(errno);
  const std::array<const char*, 7> texts = {"fsdp2 run: ", what, " ", name, ": ", reason, "\n"};
  for (const char* text : texts) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) {
      return;
    }
  }
}

// What the child does until it becomes the program.
[[noreturn]] void become(const RankCommand& command, char* const* arguments,
                         char* const* environment, int out, int err, pid_t launcher) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) {
    _exit(1);  // the launcher died before the line above
  }
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  if (!command.inherits_stdin) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
  }
  if (command.cores != nullptr && sched_setaffinity(0, sizeof(cpu_set_t), command.cores) != 0) {
    complain("cannot bind to cores", command.file.c_str());
    _exit(1);
  }
  // A signal that arrives from here on must not run the launcher's handlers.
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction handler{};
    if (sigaction(number, nullptr, &handler) == 0 && handler.sa_handler != SIG_IGN) {
      signal(number, SIG_DFL);
    }
  }
  sigprocmask(SIG_SETMASK, &command.signals, nullptr);
  execve(command.file.c_str(), arguments, environment);
  const int error = errno;
  complain("cannot start", command.file.c_str());
  _exit(error == ENOENT ? 127 : 126);
}

}  // namespace

RankProcess start_rank(const RankCommand& command) {
  const std::vector<char*> arguments = pointers(command.arguments);
  const std::vector<char*> environment = pointers(command.environment);
  const std::array<int, 2> out = make_pipe();
  const std::array<int, 2> err = make_pipe();
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become(command, arguments.data(), environment.data(), out[1], err[1], launcher);
  }
  const int error = errno;
  close(out[1]);
  close(err[1]);
  if (pid < 0) {
    close(out[0]);
    close(err[0]);
    throw std::system_error(error, std::generic_category(), "cannot start a process");
  }
  setpgid(pid, pid);  // parent and child both do it, because either may be first
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  fcntl(err[0], F_SETFL, O_NONBLOCK);
  return {pid, out[0], err[0]};
}

}  // namespace fsdp2::cli
