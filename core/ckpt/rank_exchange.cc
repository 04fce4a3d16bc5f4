#include "core/ckpt/rank_exchange.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::ckpt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongestPause{20};
// A rank whose training has failed may still finish what it is writing.
constexpr std::chrono::seconds kGraceAfterFailure{3};

}  // namespace

// Every rank counts for itself, and so comes to the same number as all others.
RankExchange::RankExchange(World& world)
    : world_(world), number_(world.store().add(fmt::format("checkpoint/of/{}", world.rank()), 1)) {}

std::string RankExchange::full(const std::string& key) const {
  return fmt::format("checkpoint/{}/{}", number_, key);
}

void RankExchange::put(const std::string& key, const std::string& text) {
  world_.store().set(full(key), std::vector<uint8_t>(text.begin(), text.end()));
}

std::string RankExchange::get(const std::string& key, const std::string& what) {
  const std::string name = full(key);
  const auto start = Clock::now();
  auto deadline = start + world_.timeout();
  bool failed = false;
  // Not Store::get: it would keep the connection from the thread that trains.
  for (milliseconds pause{1}; !world_.store().check({name});
       pause = std::min(2 * pause, kLongestPause)) {
    if (!failed && world_.failure().failed()) {
      failed = true;
      deadline = std::min(deadline, Clock::now() + kGraceAfterFailure);
    }
    if (Clock::now() >= deadline) {
      FSDP2_CHECK(!failed, Code::kPeerFailed, "gave up waiting for {}, since a rank failed: {}",
                  what, world_.failure().text());
      fail(Code::kTimeout, "waited {:.1f} s for {}",
           std::chrono::duration<double>(Clock::now() - start).count(), what);
    }
    std::this_thread::sleep_for(pause);
  }
  const std::vector<uint8_t> text = world_.store().get(name);
  return {text.begin(), text.end()};
}

void RankExchange::remove(const std::string& key) {
  static_cast<void>(world_.store().deleteKey(full(key)));
}

}  // namespace fsdp2::ckpt
