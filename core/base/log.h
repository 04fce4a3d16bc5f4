// The library's own messages, for people. No error is reported in the log alone.
//
//   log(LogLevel::kInfo, "comm", "rank {} joined {}", rank, address);
//
// Records go to standard error until set_log_sink gives them another place. A sink may be foreign
// code that only some threads may enter (Go's, a JVM's), so it runs only on threads inside a
// LogScope; records of other threads, such as a transport's, wait until the next LogScope begins.
//
// Any thread may call any of these functions. A sink may run on several threads at once and must
// not throw.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace fsdp2 {

// The numbers are those of include/fsdp2/log.h.
enum class LogLevel : int32_t {
  kDebug = 10,
  kInfo = 20,
  kWarning = 30,
  kError = 40,
  kOff = 100,
};

struct LogRecord {
  LogLevel level;
  int32_t rank;          // of the LogScope; -1: none
  int64_t time_ns;       // since the epoch
  const char* category;  // a literal: "comm"
  std::string message;
};

using LogSink = std::function<void(const LogRecord&)>;

// Sends records of at least min_level to `sink`, or to standard error if it is empty. The previous
// sink is destroyed once no thread is inside it.
void set_log_sink(LogLevel min_level, LogSink sink);

bool log_enabled(LogLevel level);
void log_text(LogLevel level, const char* category, std::string message);

// Formats only if somebody listens.
template <typename... Args>
void log(LogLevel level, const char* category, fmt::format_string<Args...> text, Args&&... args) {
  if (log_enabled(level)) {
    log_text(level, category, fmt::format(text, std::forward<Args>(args)...));
  }
}

// While it lives, this thread may run the sink. May be nested.
class LogScope {
 public:
  LogScope();
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  // The rank of this thread's records from here on.
  void set_rank(int32_t rank);

 private:
  int32_t rank_before_;
};

// True on a thread whose sink is running.
bool inside_log_sink();

}  // namespace fsdp2
