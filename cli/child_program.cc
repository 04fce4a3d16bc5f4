#include "cli/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <system_error>

namespace fsdp2::cli {

namespace {

using Clock = std::chrono::steady_clock;

void must(bool condition, const char* what) {
  if (!condition) {
    throw std::system_error(errno, std::generic_category(), what);
  }
}

void limit_data(double bytes) {
  rlimit limit{};
  if (bytes > 0 && std::isfinite(bytes) && getrlimit(RLIMIT_DATA, &limit) == 0) {
    limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(bytes));
    setrlimit(RLIMIT_DATA, &limit);
  }
}

// In the child, until it becomes the program.
[[noreturn]] void become(char* const* argv, int out, int err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execvp(argv[0], argv);
  _exit(127);
}

// Reads both pipes to their ends. False: the time is up.
bool read_to_end(std::array<pollfd, 2> sources, Clock::time_point deadline, ChildEnd* end) {
  while (sources[0].fd >= 0 || sources[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(sources.data(), sources.size(), static_cast<int>(std::max(0L, left)));
    if (ready == 0) {
      return false;
    }
    for (size_t i = 0; ready > 0 && i < sources.size(); ++i) {
      std::array<char, 4096> buffer{};
      if (sources[i].fd < 0 || sources[i].revents == 0) {
        continue;
      }
      const ssize_t n = read(sources[i].fd, buffer.data(), buffer.size());
      if (n > 0) {
        (i == 0 ? end->out : end->err).append(buffer.data(), static_cast<size_t>(n));
      } else {
        sources[i].fd = -1;
      }
    }
  }
  return true;
}

}  // namespace

std::string ChildEnd::last_words() const {
  const size_t end = err.find_last_not_of(" \r\n");
  if (end == std::string::npos) {
    return timed_out ? "it did not end in time" : "exit code " + std::to_string(exit_code);
  }
  const size_t line = err.rfind('\n', end);
  const size_t begin = line == std::string::npos ? 0 : line + 1;
  return err.substr(begin, end + 1 - begin) + (timed_out ? "; it did not end in time" : "");
}

ChildEnd run_child(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& variables,
                   double timeout_s, double data_bytes) {
  std::vector<char*> argv;
  for (const std::string& argument : command) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  std::array<int, 2> out{}, err{};
  must(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0, "pipe");
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<long>(timeout_s * 1e3));
  const pid_t pid = fork();
  must(pid >= 0, "fork");
  if (pid == 0) {
    for (const auto& [name, value] : variables) {
      setenv(name.c_str(), value.c_str(), 1);
    }
    limit_data(data_bytes);
    become(argv.data(), out[1], err[1]);
  }
  close(out[1]);
  close(err[1]);
  ChildEnd end;
  end.timed_out =
      !read_to_end({pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}}, deadline, &end);
  if (end.timed_out) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  }
  close(out[0]);
  close(err[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return end;
}

}  // namespace fsdp2::cli
