#include "cli/interruption.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

namespace fsdp2::cli {

namespace {

std::atomic<int> g_noted{0};

void note(int signal) { g_noted = signal; }

}  // namespace

void note_interruptions() {
  static_assert(std::atomic<int>::is_always_lock_free, "the handler must not wait for a lock");
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESETHAND;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {  // by nohup, or a shell that starts a job in the background
      sigaction(number, &action, nullptr);
    }
  }
}

void end_if_interrupted() {
  if (g_noted != 0) {
    throw Interrupted{g_noted};
  }
}

void end_by_signal(int number) {
  signal(number, SIG_DFL);
  raise(number);
  _exit(128 + number);
}

}  // namespace fsdp2::cli
