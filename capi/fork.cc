#include "capi/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace fsdp2::capi {

namespace {

std::atomic<bool> forked{false};

}  // namespace

void note_use() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { forked = true; }); });
}

bool in_fork() { return forked; }

}  // namespace fsdp2::capi
