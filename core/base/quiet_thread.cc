#include "core/base/quiet_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <exception>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

// A thread begins with the mask of the one that starts it.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

struct Work {
  const std::function<void()>& body;
  std::exception_ptr error = nullptr;
};

void* run_work(void* given) {
  auto* work = static_cast<Work*>(given);
  try {
    work->body();
  } catch (...) {
    work->error = std::current_exception();
  }
  return nullptr;
}

int start_on_stack(size_t stack_bytes, Work& work, pthread_t& thread) {
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  int failure = ::pthread_attr_setstacksize(&attributes, stack_bytes);
  if (failure == 0) {
    const AllSignalsBlocked blocked;
    failure = ::pthread_create(&thread, &attributes, run_work, &work);
  }
  ::pthread_attr_destroy(&attributes);
  return failure;
}

}  // namespace

std::thread start_quiet_thread(std::function<void()> work) {
  const AllSignalsBlocked blocked;
  return std::thread(std::move(work));
}

void run_on_deep_stack(size_t stack_bytes, const std::function<void()>& work) {
  Work given{work};
  pthread_t thread{};
  if (const int failure = start_on_stack(stack_bytes, given, thread); failure != 0) {
    throw Error(Code::kOutOfMemory,
                fmt::format("expected a thread with a stack of {} bytes, the system gives none: {}",
                            stack_bytes, std::generic_category().message(failure)),
                failure);
  }
  ::pthread_join(thread, nullptr);
  if (given.error) {
    std::rethrow_exception(given.error);
  }
}

}  // namespace fsdp2
