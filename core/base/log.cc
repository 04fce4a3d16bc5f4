#include "core/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>

namespace fsdp2 {

namespace {

constexpr size_t kMaxQueued = 1000;

struct Hub {
  std::mutex mutex;
  std::shared_ptr<const LogSink> sink;  // null: standard error
  std::deque<LogRecord> queue;
  int64_t dropped = 0;
};

// Never destroyed: threads of transports may log while the process ends.
Hub& hub() {
  static Hub& instance = *new Hub;
  return instance;
}

std::atomic<int32_t> min_level{static_cast<int32_t>(LogLevel::kWarning)};
std::atomic<bool> has_queued{false};

thread_local int scope_depth = 0;
thread_local int32_t scope_rank = -1;
thread_local bool in_sink = false;

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    default:
      return "error";
  }
}

void write_to_stderr(const LogRecord& record) {
  const std::string rank = record.rank < 0 ? "" : fmt::format(" rank {}", record.rank);
  const std::string line = fmt::format("fsdp2{} {} [{}] {}\n", rank, level_name(record.level),
                                       record.category, record.message);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void run_sink(const LogSink& sink, const LogRecord& record) {
  struct Inside {
    Inside() { in_sink = true; }
    ~Inside() { in_sink = false; }
  } inside;
  sink(record);
}

void deliver_queued() {
  if (!has_queued.load(std::memory_order_acquire) || in_sink) {
    return;
  }
  std::deque<LogRecord> queue;
  std::shared_ptr<const LogSink> sink;
  int64_t dropped = 0;
  {
    std::lock_guard<std::mutex> lock(hub().mutex);
    queue.swap(hub().queue);
    std::swap(dropped, hub().dropped);
    sink = hub().sink;
    has_queued.store(false, std::memory_order_release);
  }
  if (dropped > 0) {
    const int64_t time = queue.back().time_ns;
    queue.push_back({LogLevel::kWarning, -1, time, "log",
                     fmt::format("{} records of internal threads were dropped", dropped)});
  }
  for (const LogRecord& record : queue) {
    if (sink) {
      run_sink(*sink, record);
    } else {
      write_to_stderr(record);
    }
  }
}

}  // namespace

void set_log_sink(LogLevel level, LogSink sink) {
  std::shared_ptr<const LogSink> next;
  if (sink) {
    next = std::make_shared<const LogSink>(std::move(sink));
  }
  {
    std::lock_guard<std::mutex> lock(hub().mutex);
    min_level.store(static_cast<int32_t>(level));
    hub().sink.swap(next);
  }
  // The old sink goes here, outside the lock.
}

bool log_enabled(LogLevel level) {
  return static_cast<int32_t>(level) >= min_level.load(std::memory_order_relaxed);
}

void log_text(LogLevel level, const char* category, std::string message) {
  if (!log_enabled(level)) {
    return;
  }
  using std::chrono::nanoseconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  LogRecord record{level, scope_rank, std::chrono::duration_cast<nanoseconds>(now).count(),
                   category, std::move(message)};
  std::shared_ptr<const LogSink> sink;
  {
    std::lock_guard<std::mutex> lock(hub().mutex);
    sink = hub().sink;
    if (sink && (scope_depth == 0 || in_sink)) {
      if (hub().queue.size() < kMaxQueued) {
        hub().queue.push_back(std::move(record));
      } else {
        ++hub().dropped;
      }
      has_queued.store(true, std::memory_order_release);
      return;
    }
  }
  if (sink) {
    run_sink(*sink, record);
  } else {
    write_to_stderr(record);
  }
}

LogScope::LogScope() : rank_before_(scope_rank) {
  ++scope_depth;
  scope_rank = -1;
  deliver_queued();
}

LogScope::~LogScope() {
  scope_rank = rank_before_;
  --scope_depth;
}

void LogScope::set_rank(int32_t rank) { scope_rank = rank; }

bool inside_log_sink() { return in_sink; }

}  // namespace fsdp2
