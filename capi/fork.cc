#include "capi/fork.h"

#include <pthread.h>

#include <atomic>

namespace fsdp2::capi {

namespace {

std::atomic<bool> forked{false};

}  // namespace

void note_use() {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forked = true; });
}

bool in_fork() { return forked; }

}  // namespace fsdp2::capi
