#include "cli/train/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <mutex>
#include <sstream>
#include <thread>

#include "cli/terminal.h"

namespace fsdp2::cli {

namespace {

constexpr std::array<int, 2> kSignals = {SIGTERM, SIGINT};

struct Watch {
  std::mutex mutex;
  bool notes = false;
  double grace_s = 0;  // this and the rank are not written any more once a signal was noted
  std::string rank;
  std::atomic<int> noted{0};
};

// Never destroyed: the thread outlives main().
Watch& watch() {
  static Watch* const the_watch = new Watch;
  return *the_watch;
}

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kSignals) {
    struct sigaction action{};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) {
      sigaddset(&set, number);
    }
  }
  return set;
}

std::string number_text(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// Ends the process as the signal does by itself.
[[noreturn]] void end_by(int number) {
  signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(number);
  _exit(128 + number);
}

// One write, so that other threads' lines stay whole; a line that updates itself is drawn anew
// below.
void tell(const std::string& text) {
  const std::string clear =
      terminal_columns(STDERR_FILENO) > 0 ? std::string("\r") + kClearToEnd : "";
  const std::string& rank = watch().rank;
  const std::string who = rank.empty() ? "" : "rank " + rank + ": ";
  const std::string line = clear + "fsdp2 train: " + who + text + "\n";
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) {
    return;  // nobody is watching any more
  }
}

timespec as_timespec(double seconds) {
  constexpr double kMost = 1e9;
  const double whole = std::floor(std::min(seconds, kMost));
  return {static_cast<time_t>(whole), static_cast<long>((std::min(seconds, kMost) - whole) * 1e9)};
}

// Waits for the second signal, or for the end of the grace time.
[[noreturn]] void end_at_the_latest(const sigset_t& set, int first) {
  const double grace_s = watch().grace_s;
  const timespec time = as_timespec(grace_s);
  int number = -1;
  do {
    number = grace_s > 0 ? sigtimedwait(&set, nullptr, &time) : sigwaitinfo(&set, nullptr);
  } while (number < 0 && errno == EINTR);
  if (number < 0) {
    tell("the run has not ended within the --grace-s of " + number_text(grace_s) + " s after " +
         stop_signal_name(first) + "; what it has not saved by now is lost");
  }
  end_by(number < 0 ? first : number);
}

void wait_for_signals(const sigset_t& set) {
  int number = 0;
  while (sigwait(&set, &number) != 0) {
  }
  {
    const std::lock_guard<std::mutex> lock(watch().mutex);
    if (!watch().notes) {
      end_by(number);
    }
    watch().noted = number;
  }
  end_at_the_latest(set, number);
}

}  // namespace

void watch_stop_signals() {
  const sigset_t set = watched();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set] { wait_for_signals(set); }).detach();
}

void note_stop_signals(double grace_s, const std::string& rank) {
  const std::lock_guard<std::mutex> lock(watch().mutex);
  watch().notes = true;
  watch().grace_s = grace_s;
  watch().rank = rank;
}

int noted_stop_signal() { return watch().noted; }

void let_writes_fail() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
}

std::string stop_signal_name(int number) {
  return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : std::to_string(number);
}

}  // namespace fsdp2::cli
