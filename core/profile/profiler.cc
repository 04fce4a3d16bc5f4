#include "core/profile/profiler.h"

#include <ATen/Context.h>
#include <signal.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/blocked_signal.h"
#include "core/base/error.h"
#include "core/profile/operator_table.h"

namespace fsdp2::profile {

namespace {

namespace libtorch = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Which thread has started the profiler that runs; none by default.
struct Running {
  std::mutex mutex;
  std::thread::id thread;
};

Running& running() {
  static Running* const the_running = new Running;
  return *the_running;
}

// Null unless this thread has started the profiler that runs.
std::unique_ptr<libtorch::ProfilerResult> stop_own() {
  const std::lock_guard<std::mutex> lock(running().mutex);
  if (running().thread != std::this_thread::get_id()) {
    return nullptr;
  }
  running().thread = std::thread::id();
  return libtorch::disableProfiler();
}

// Ends with the thread that has started a profiler, and stops it if nobody has: nobody else could,
// and LibTorch would crash at the end of the process.
class ThreadEnd {
 public:
  ThreadEnd() = default;
  ~ThreadEnd() {
    if (::getpid() != process_) {
      return;  // a fork, where nobody may ever let go of the profiler's locks
    }
    try {
      stop_own();
    } catch (...) {  // nobody is left who would want the profile
    }
  }
  ThreadEnd(const ThreadEnd&) = delete;
  ThreadEnd& operator=(const ThreadEnd&) = delete;

 private:
  const pid_t process_ = ::getpid();
};

std::set<ActivityType> activities() {
  std::set<ActivityType> all = {ActivityType::CPU};
  if (at::globalContext().hasCUDA()) {
    all.insert(ActivityType::CUDA);
  }
  return all;
}

torch::profiler::impl::ProfilerConfig configuration() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}

std::vector<Span> spans_of(const libtorch::ProfilerResult& result) {
  std::vector<Span> spans;
  for (const libtorch::KinetoEvent& event : result.events()) {
    const bool on_host = event.deviceType() == c10::DeviceType::CPU;
    if (event.isAsync() || event.isHiddenEvent()) {
      continue;
    }
    spans.push_back(
        {event.name(), on_host,
         on_host ? event.startThreadId() : static_cast<uint64_t>(event.deviceResourceId()),
         static_cast<int64_t>(event.startNs()), static_cast<int64_t>(event.endNs())});
  }
  return spans;
}

}  // namespace

Profile::Profile(std::unique_ptr<libtorch::ProfilerResult> result)
    : result_(std::move(result)), table_(operator_table(operator_rows(spans_of(*result_)))) {}

Profile::~Profile() = default;

// Kineto tells nobody what it could not write, and leaves what it could.
void Profile::save_trace(const std::string& path) {
  const BlockedSignal guard(SIGXFSZ);
  errno = 0;
  FSDP2_CHECK(std::ofstream(path).good(), Code::kIo, "{}: cannot be written: {}", path,
              std::strerror(errno));
  result_->save(path);
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error || bytes == 0) {
    std::filesystem::remove(path, error);
    std::filesystem::remove(path + ".tmp", error);
    fail(Code::kIo, "{}: the trace was not written whole: is the disk full?", path);
  }
}

void start() {
  const std::lock_guard<std::mutex> lock(running().mutex);
  FSDP2_CHECK(
      running().thread == std::thread::id() && !torch::profiler::impl::profilerEnabled(),
      Code::kWrongState,
      "a profiler runs in this process already: expected to be the only one; stop it first");
  libtorch::prepareProfiler(configuration(), activities());
  libtorch::enableProfiler(
      configuration(), activities(),
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  running().thread = std::this_thread::get_id();
  // Behind what LibTorch keeps for the thread, and so destroyed before it.
  thread_local const ThreadEnd end;
  static_cast<void>(end);
}

std::unique_ptr<Profile> stop() {
  auto result = stop_own();
  FSDP2_CHECK(result != nullptr, Code::kWrongState,
              "no profiler to stop: expected the thread that has started one");
  return std::make_unique<Profile>(std::move(result));
}

}  // namespace fsdp2::profile
