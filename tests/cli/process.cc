#include "tests/cli/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

namespace fsdp2::test {

namespace {

namespace fs = std::filesystem;

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

void must(bool condition, const char* what) {
  if (!condition) {
    throw std::system_error(errno, std::generic_category(), what);
  }
}

// A file without a name that holds `text`, to be read from its start.
int as_file(const std::string& text) {
  std::string name = (fs::temp_directory_path() / "inputXXXXXX").string();
  const int file = mkstemp(name.data());
  must(file >= 0, "mkstemp");
  unlink(name.c_str());
  must(write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()), "write");
  must(lseek(file, 0, SEEK_SET) == 0, "lseek");
  return file;
}

// Directories that are removed when this process ends by itself with all well, and not by a child
// of it.
class Directories {
 public:
  ~Directories() {
    const bool keeps = getpid() != owner_ || !testing::UnitTest::GetInstance()->Passed();
    for (const std::string& name : names_) {
      std::error_code ignored;  // what a test has taken the permissions from stays
      if (!keeps) {
        fs::remove_all(name, ignored);
      }
    }
  }
  void add(const std::string& name) { names_.push_back(name); }

 private:
  const pid_t owner_ = getpid();
  std::vector<std::string> names_;
};

[[noreturn]] void become(const std::vector<std::string>& command, const RunIn& how) {
  if (!how.directory.empty() && chdir(how.directory.c_str()) != 0) {
    _exit(125);
  }
  if (how.terminal_columns > 0) {
    setenv("TERM", "xterm", 1);
  }
  for (const auto& [name, value] : how.environment) {
    value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> argv;
  for (const std::string& argument : command) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(127);
}

}  // namespace

std::vector<std::string> Outcome::err_lines_with(const std::string& text) const {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(err)) {
    if (line.find(text) != std::string::npos) {
      found.push_back(line);
    }
  }
  return found;
}

RunIn on_terminal(int columns) {
  RunIn how;
  how.terminal_columns = columns;
  return how;
}

RunIn merged() {
  RunIn how;
  how.merge = true;
  return how;
}

RunIn unread() {
  RunIn how;
  how.unread = true;
  return how;
}

RunIn with_input(const std::string& text) {
  RunIn how;
  how.input = text;
  return how;
}

RunIn with_variable(const std::string& name, const std::string& value) {
  RunIn how;
  how.environment = {{name, value}};
  return how;
}

Process::Process(const std::vector<std::string>& command, const RunIn& how)
    : started_(now()), deadline_(started_ + how.timeout_s) {
  if (how.terminal_columns > 0) {
    winsize size{};
    size.ws_row = 25;
    size.ws_col = static_cast<unsigned short>(how.terminal_columns);
    pid_ = forkpty(&out_, nullptr, nullptr, &size);
    must(pid_ >= 0, "forkpty");
    if (pid_ == 0) {
      become(command, how);
    }
    return;
  }
  std::array<int, 2> out{}, err{};
  must(pipe2(out.data(), O_CLOEXEC) == 0 && pipe2(err.data(), O_CLOEXEC) == 0, "pipe");
  const int in = as_file(how.input);
  if (how.unread) {
    close(std::exchange(out[0], -1));
  }
  pid_ = fork();
  must(pid_ >= 0, "fork");
  if (pid_ == 0) {
    dup2(in, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(how.merge ? out[1] : err[1], STDERR_FILENO);
    become(command, how);
  }
  close(in);
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
  close(err_);
}

// False: both streams are at their end, or the time is up.
bool Process::read_some() {
  std::array<pollfd, 2> sources = {pollfd{out_, POLLIN, 0}, pollfd{err_, POLLIN, 0}};
  const auto left = static_cast<int>(std::max(0.0, deadline_ - now()) * 1000);
  if (poll(sources.data(), sources.size(), left) <= 0) {
    outcome_.timed_out = true;
    return false;
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    std::array<char, 4096> buffer;
    if (sources[i].revents == 0) {
      continue;
    }
    const ssize_t n = read(sources[i].fd, buffer.data(), buffer.size());
    if (n > 0) {
      (i == 0 ? outcome_.out : outcome_.err).append(buffer.data(), static_cast<size_t>(n));
    } else {  // a terminal whose other side has gone is an error, not an end
      close(sources[i].fd);
      (i == 0 ? out_ : err_) = -1;
    }
  }
  return out_ >= 0 || err_ >= 0;
}

bool Process::wait_for_output(const std::string& text, int times) {
  size_t seen = 0;
  for (int i = 0; i < times;) {
    const size_t at = outcome_.out.find(text, seen);
    if (at != std::string::npos) {
      seen = at + text.size();
      ++i;
    } else if (!read_some()) {
      return false;
    }
  }
  return true;
}

Outcome Process::wait() {
  while (read_some()) {
  }
  if (outcome_.timed_out) {
    kill(pid_, SIGKILL);
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  outcome_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome_.seconds = now() - started_;
  return outcome_;
}

Outcome run(const std::vector<std::string>& command, const RunIn& how) {
  return Process(command, how).wait();
}

bool anybody_has(const std::string& text) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    std::ostringstream arguments;
    arguments << file.rdbuf();
    if (arguments.str().find(text) != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool comes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return condition();
}

std::string fsdp2_program() { return repository_file("cli/fsdp2"); }

std::vector<std::string> launched(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> all = {fsdp2_program(), "run", "--nproc-per-node", std::to_string(ranks),
                                  "--"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

std::string repository_file(const std::string& path) {
  return fs::absolute(path).string();  // tests start in the root of their files
}

std::string empty_directory() {
  std::string name = (fs::temp_directory_path() / "fsdp2XXXXXX").string();
  must(mkdtemp(name.data()) != nullptr, "mkdtemp");
  static Directories directories;
  directories.add(name);
  return name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    throw std::runtime_error(path + ": cannot be read");
  }
  return text.str();
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  if (!file.flush()) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

void damage_file(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(path, bytes);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace fsdp2::test
