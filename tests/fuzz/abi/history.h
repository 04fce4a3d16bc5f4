// The last calls of every fuzzing thread, kept where a signal handler can print them, and a watch
// over calls that do not come back.
#pragma once

#include <cstdint>
#include <string>

namespace fsdp2::fuzz {

// What to say in front of the calls: how to have the failure again.
void set_replay(const std::string& command_line);
// Prints each call as it is made.
void print_calls(bool on);

// By all threads, nested ones included.
uint64_t calls_made();

// Ends the program with `what` and the last calls of all threads.
[[noreturn]] void report(const std::string& what);

// Before the first call: signals print the calls, and a thread ends the program where a call takes
// longer than `limit_ms`.
void start_watch(int64_t limit_ms);

// One call on this thread, which another may surround.
class Noted {
 public:
  explicit Noted(const std::string& call);
  ~Noted();
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

  void returned(const char* status);

 private:
  char* line_;
  int64_t surrounding_began_;
};

}  // namespace fsdp2::fuzz
