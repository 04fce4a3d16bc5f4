#include "cli/run/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>

namespace fsdp2::cli {

namespace {

constexpr std::array<int, 3> kForwarded = {SIGINT, SIGTERM, SIGHUP};

// What the handler reads: made before the handler is installed, and never destroyed.
struct Ranks {
  size_t n = 0;
  std::unique_ptr<std::atomic<pid_t>[]> pids;
};
Ranks g_ranks;
std::atomic<int> g_interrupts{0};

void send_to(size_t index, int signal) {
  const pid_t pid = g_ranks.pids[index].load();
  if (pid > 0) {
    kill(-pid, signal);
  }
}

void send(int signal) {
  for (size_t i = 0; i < g_ranks.n; ++i) {
    send_to(i, signal);
  }
}

void forward(int signal) {
  const int error = errno;  // of the call that the signal interrupts
  const bool insists = signal == SIGINT && g_interrupts.fetch_add(1) > 0;
  send(insists ? SIGKILL : signal);
  errno = error;
}

}  // namespace

void forward_signals(size_t n) {
  static_assert(std::atomic<pid_t>::is_always_lock_free, "the handler must not wait for a lock");
  g_ranks.pids = std::make_unique<std::atomic<pid_t>[]>(n);
  g_ranks.n = n;
  struct sigaction action{};
  action.sa_handler = forward;
  for (const int signal : kForwarded) {
    struct sigaction before{};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) {  // by nohup, or a shell that starts a job in the background
      sigaction(signal, &action, nullptr);
    }
  }
}

void set_rank_process(size_t index, pid_t pid) { g_ranks.pids[index] = pid; }

void signal_rank(size_t index, int signal) { send_to(index, signal); }

void signal_ranks(int signal) { send(signal); }

bool is_insisted_on() { return g_interrupts.load() > 1; }

SignalsHeld::SignalsHeld() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kForwarded) {
    sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, &before_);
}

SignalsHeld::~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace fsdp2::cli
