#include "tests/fuzz/abi/history.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/fuzz/abi/fair_clock.h"

// The sanitizers' runtimes have it; null where the program has none of them.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace fsdp2::fuzz {

namespace {

constexpr size_t kLines = 24;
constexpr size_t kLineBytes = 480;
constexpr size_t kTracks = 64;

// What one thread has called. Tracks of threads that have ended are used again.
struct Track {
  std::array<std::array<char, kLineBytes>, kLines> lines{};
  std::atomic<uint64_t> count{0};
  std::atomic<int64_t> began_ms{0};  // of the innermost call; 0: outside
  std::atomic<bool> taken{false};
};
Track tracks[kTracks];
std::array<char, 512> replay{};
std::atomic<bool> prints{false};
std::atomic<uint64_t> calls{0};
std::atomic<bool> reported{false};

bool is_sanitized() { return __sanitizer_set_death_callback != nullptr; }

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void write_text(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

// May run in a signal handler.
void print_history() {
  if (reported.exchange(true)) {
    return;
  }
  write_text("\nto have it again: ");
  write_text(replay.data());
  for (const Track& track : tracks) {
    const uint64_t count = track.count.load();
    if (!track.taken) {
      continue;
    }
    write_text("\nlast calls of a thread, the newest below:\n");
    for (uint64_t i = count > kLines ? count - kLines : 0; i < count; ++i) {
      write_text("  ");
      write_text(track.lines[i % kLines].data());
      write_text("\n");
    }
  }
}

void on_signal(int number) {
  write_text("\nfailed: a signal: ");
  write_text(strsignal(number));
  print_history();
  signal(number, SIG_DFL);
  raise(number);
}

// A stack of its own for handlers, so that a stack that has run over is reported, too.
struct OwnTrack {
  OwnTrack() {
    for (Track& candidate : tracks) {
      if (!candidate.taken.exchange(true)) {
        track = &candidate;
        break;
      }
    }
    if (track == nullptr) {
      report("more threads than tracks");
    }
    track->count = 0;
    if (is_sanitized()) {
      return;  // which has stacks of its own
    }
    stack_t own{};
    own.ss_sp = stack.data();
    own.ss_size = stack.size();
    sigaltstack(&own, nullptr);
  }
  ~OwnTrack() {
    track->taken = false;
    if (!is_sanitized()) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      sigaltstack(&none, nullptr);
    }
  }

  Track* track = nullptr;
  std::vector<char> stack = std::vector<char>(1 << 16);
};

Track& own_track() {
  thread_local OwnTrack own;
  return *own.track;
}

// The call that a thread is in, and for how long as far as that counts.
struct Watched {
  int64_t began_ms = 0;
  int64_t took_ms = 0;
};

[[noreturn]] void watch(int64_t limit_ms) {
  FairClock clock;
  std::array<Watched, kTracks> watched;
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const int64_t tick_ms = clock.tick_ms();
    for (size_t i = 0; i < kTracks; ++i) {
      const int64_t began = tracks[i].taken ? tracks[i].began_ms.load() : 0;
      const bool goes_on = began != 0 && began == watched[i].began_ms;
      watched[i] = {began, goes_on ? watched[i].took_ms + tick_ms : 0};
      if (watched[i].took_ms > limit_ms) {
        write_text("\nfailed: a call that takes too long, the last of one of these threads");
        print_history();
        ::abort();
      }
    }
  }
}

}  // namespace

void set_replay(const std::string& command_line) {
  const size_t length = std::min(command_line.size(), replay.size() - 1);
  std::memcpy(replay.data(), command_line.c_str(), length);
  replay[length] = '\0';
}

void print_calls(bool on) { prints = on; }

uint64_t calls_made() { return calls; }

void report(const std::string& what) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  write_text(("\nfailed: " + what).c_str());
  print_history();
  std::quick_exit(1);
}

void start_watch(int64_t limit_ms) {
  if (is_sanitized()) {
    __sanitizer_set_death_callback(print_history);
  } else {
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
      struct sigaction action{};
      action.sa_handler = on_signal;
      action.sa_flags = SA_ONSTACK;
      sigaction(number, &action, nullptr);
    }
  }
  std::thread(watch, limit_ms).detach();
}

Noted::Noted(const std::string& call) {
  Track& track = own_track();
  line_ = track.lines[track.count % kLines].data();
  const size_t length = std::min(call.size(), kLineBytes - 40);
  std::memcpy(line_, call.c_str(), length);
  line_[length] = '\0';
  track.count.fetch_add(1);
  calls.fetch_add(1);
  surrounding_began_ = track.began_ms.exchange(now_ms());
  if (prints) {
    write_text((call + "\n").c_str());
  }
}

Noted::~Noted() {
  // The call around this one begins anew: it is not to blame for what this one took.
  own_track().began_ms = surrounding_began_ == 0 ? 0 : now_ms();
}

void Noted::returned(const char* status) {
  const size_t length = strnlen(line_, kLineBytes - 40);
  std::snprintf(line_ + length, kLineBytes - length, " = %.36s", status);
  if (prints) {
    write_text((std::string("  = ") + status + "\n").c_str());
  }
}

}  // namespace fsdp2::fuzz
