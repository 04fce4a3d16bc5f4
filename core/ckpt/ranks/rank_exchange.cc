#include "core/ckpt/ranks/rank_exchange.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/base/error.h"

namespace fsdp2::ckpt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Between two looks for a text. A thirtieth of the time waited so far: a save takes hardly longer
// for it, and the store of a long one is left in peace.
constexpr microseconds kLongestPause{20000};
constexpr microseconds kShortestPause{1000};
constexpr int kPausesPerWait = 32;
constexpr int kRanksPerShortestPause = 16;  // all ask the one store
// A rank whose training has failed may still finish what it is writing.
constexpr std::chrono::seconds kGraceAfterFailure{3};
constexpr std::chrono::seconds kLongestReading{5};
constexpr milliseconds kBetweenNotes{100};
constexpr int kLooksPerTimeout = 16;

constexpr char kProgress[] = "progress";
constexpr char kRead[] = "read";

microseconds pause_after(Clock::duration waited, int ranks) {
  const microseconds shortest = kShortestPause * std::max(1, ranks / kRanksPerShortestPause);
  const auto part = std::chrono::duration_cast<microseconds>(waited / kPausesPerWait);
  return std::min(std::max(shortest, part), kLongestPause);
}

}  // namespace

// Every rank counts for itself, and so comes to the same number as all others.
RankExchange::RankExchange(World& world)
    : world_(world),
      notes_(world, "saving a checkpoint"),
      number_(notes_.count(fmt::format("checkpoint/of/{}", world.rank()), 1)) {}

std::string RankExchange::full(const std::string& key) const {
  return fmt::format("checkpoint/{}/{}", number_, key);
}

void RankExchange::put(const std::string& key, const std::string& text) {
  notes_.put(full(key), text);
}

int64_t RankExchange::count(const char* key, int64_t more) { return notes_.count(full(key), more); }

std::string RankExchange::get(const std::string& key, const std::string& what) {
  const std::string name = full(key);
  const auto start = Clock::now();
  const auto between_looks = world_.timeout() / kLooksPerTimeout;
  auto deadline = start + world_.timeout();
  auto next_look = start + between_looks;
  int64_t progress = 0;
  bool failed = false;
  // A get that waits would keep the connection from the thread that trains.
  while (!notes_.has(name)) {
    const auto now = Clock::now();
    if (!failed && world_.failure().failed()) {
      failed = true;
      deadline = std::min(deadline, now + kGraceAfterFailure);
    }
    if (!failed && now >= next_look) {
      next_look = now + between_looks;
      if (const int64_t seen = count(kProgress, 0); seen != progress) {
        progress = seen;
        deadline = now + world_.timeout();
      }
    }
    if (now >= deadline) {
      FSDP2_CHECK(!failed, Code::kPeerFailed, "gave up waiting for {}, since a rank failed: {}",
                  what, world_.failure().text());
      fail(Code::kTimeout, "waited {:.1f} s for {}",
           std::chrono::duration<double>(now - start).count(), what);
    }
    std::this_thread::sleep_for(pause_after(now - start, world_.size()));
  }
  return notes_.get(name);
}

void RankExchange::note_progress() {
  const auto now = Clock::now().time_since_epoch();
  auto next = next_note_.load();
  if (now.count() >= next &&
      next_note_.compare_exchange_strong(next, (now + Clock::duration(kBetweenNotes)).count())) {
    count(kProgress, 1);
  }
}

void RankExchange::note_read() { count(kRead, 1); }

bool RankExchange::wait_until_read_by(int ranks) {
  const auto deadline = Clock::now() + std::min<Clock::duration>(kLongestReading, world_.timeout());
  while (count(kRead, 0) < ranks) {
    if (Clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  for (const char* key : {kRead, kProgress}) {
    remove(key);
  }
  return true;
}

void RankExchange::remove(const std::string& key) { notes_.remove(full(key)); }

}  // namespace fsdp2::ckpt
