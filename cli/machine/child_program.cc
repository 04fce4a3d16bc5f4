#include "cli/machine/child_program.h"

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
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "cli/interruption.h"

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
    limit.rlim_cur = std::min(limit.rlim_cur, static_cast<rlim_t>(bytes));
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
  dprintf(STDERR_FILENO, "%s: cannot be started: %s\n", argv[0], std::strerror(errno));
  _exit(127);
}

// A program that runs. It is killed where nobody waits for its end.
class Child {
 public:
  Child(const std::vector<std::string>& command,
        const std::vector<std::pair<std::string, std::string>>& variables, double data_bytes) {
    std::vector<char*> argv;
    for (const std::string& argument : command) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    std::array<int, 2> out{}, err{};
    must(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0, "pipe");
    pid_ = fork();
    must(pid_ >= 0, "fork");
    if (pid_ == 0) {
      for (const auto& [name, value] : variables) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      limit_data(data_bytes);
      become(argv.data(), out[1], err[1]);
    }
    setpgid(pid_, pid_);  // parent and child both do it, because either may be first
    close(out[1]);
    close(err[1]);
    sources_ = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  }
  ~Child() {
    if (pid_ > 0) {
      kill();
      wait();
    }
    for (const pollfd& source : sources_) {
      if (source.fd >= 0) {
        close(source.fd);
      }
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Reads both streams to their ends. False: the time is up. Throws Interrupted.
  bool read_to_end(Clock::time_point deadline, ChildEnd* end) {
    while (sources_[0].fd >= 0 || sources_[1].fd >= 0) {
      end_if_interrupted();
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) {
        return false;
      }
      const int wait = static_cast<int>(std::min(left, kLookAround).count());
      if (poll(sources_.data(), sources_.size(), wait) > 0) {
        read_some(&sources_[0], &end->out);
        read_some(&sources_[1], &end->err);
      }
    }
    return true;
  }

  // False: the time is up, and it has not ended. Throws Interrupted.
  bool ends_by(Clock::time_point deadline) const {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0) {
      end_if_interrupted();
      if (Clock::now() >= deadline) {
        return false;
      }
      std::this_thread::sleep_for(kBreath);
    }
    return true;
  }

  void kill() const {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }

  // Its exit code.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

 private:
  static constexpr std::chrono::milliseconds kLookAround{100};  // for signals
  static constexpr std::chrono::milliseconds kBreath{1};

  static void read_some(pollfd* source, std::string* text) {
    std::array<char, 4096> buffer{};
    if (source->fd < 0 || source->revents == 0) {
      return;
    }
    const ssize_t n = read(source->fd, buffer.data(), buffer.size());
    if (n > 0) {
      text->append(buffer.data(), static_cast<size_t>(n));
      if (text->size() > ChildEnd::kMostBytes) {
        text->erase(0, text->size() / 2);
      }
    } else {
      close(source->fd);
      source->fd = -1;
    }
  }

  pid_t pid_ = 0;
  std::array<pollfd, 2> sources_{};
};

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
  const auto deadline =
      Clock::now() + std::chrono::milliseconds(static_cast<long>(timeout_s * 1e3));
  Child child(command, variables, data_bytes);
  ChildEnd end;
  end.timed_out = !child.read_to_end(deadline, &end) || !child.ends_by(deadline);
  if (end.timed_out) {
    child.kill();
  }
  end.exit_code = child.wait();
  return end;
}

}  // namespace fsdp2::cli
