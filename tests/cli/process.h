// Runs programs for tests, mostly the fsdp2 command itself.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2::test {

struct Outcome {
  int exit_code = -1;  // 128 + signal, as shells say it
  std::string out;
  std::string err;
  double seconds = 0;
  bool timed_out = false;  // it was killed

  // Lines of standard error that hold `text`.
  std::vector<std::string> err_lines_with(const std::string& text) const;
};

// How a program is run.
struct RunIn {
  std::string directory;                                         // "": this process's
  std::vector<std::pair<std::string, std::string>> environment;  // added; "" takes one away
  std::string input;                                             // its standard input
  double timeout_s = 180;  // which excludes a hang, and no program that a busy machine holds up
  bool merge = false;      // standard error goes where standard output goes
  bool unread = false;     // standard output is a pipe whose reader has left
  // Above 0: both go to a terminal so wide; what it gets is in `out`.
  int terminal_columns = 0;
};

RunIn on_terminal(int columns = 100);
RunIn merged();
RunIn unread();
RunIn with_input(const std::string& text);
RunIn with_variable(const std::string& name, const std::string& value);

// A program that runs.
class Process {
 public:
  Process(const std::vector<std::string>& command, const RunIn& how);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int pid() const { return pid_; }
  // Reads until standard output has held `text` so many times; false if it ends first.
  bool wait_for_output(const std::string& text, int times);
  // Standard output so far.
  const std::string& output() const { return outcome_.out; }
  Outcome wait();

 private:
  bool read_some();

  int pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  double started_ = 0;
  double deadline_ = 0;
  Outcome outcome_;
};

Outcome run(const std::vector<std::string>& command, const RunIn& how = {});

// Whether a process of this machine has this text among its arguments, a zero byte after each.
bool anybody_has(const std::string& text);

// Waits, up to a minute.
bool comes_true(const std::function<bool()>& condition);

// The fsdp2 command under test, an absolute path.
std::string fsdp2_program();

// {fsdp2, "run", "--nproc-per-node", n, "--", command...}
std::vector<std::string> launched(int ranks, const std::vector<std::string>& command);

// An absolute path of a file of this repository.
std::string repository_file(const std::string& path);

// A new, empty directory, which goes with the test program unless tests have failed. By one thread
// at a time.
std::string empty_directory();

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& bytes);
// Changes one bit in the middle of a file.
void damage_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);

}  // namespace fsdp2::test
