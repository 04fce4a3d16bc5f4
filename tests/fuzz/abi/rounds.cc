#include "tests/fuzz/abi/rounds.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/fuzz/abi/fuzzer.h"
#include "tests/fuzz/abi/history.h"

namespace fsdp2::fuzz {

namespace {

constexpr uint64_t kCalls = 300;

void require(fsdp2_status status, const char* what) {
  if (status != FSDP2_OK) {
    report(std::string(what) + ": " + fsdp2_error_message());
  }
}

// The scratch directory is the working directory: tokens that a loader takes, and nothing else.
void clear_scratch() {
  for (const auto& entry : std::filesystem::directory_iterator(".")) {
    std::filesystem::remove_all(entry.path());
  }
  std::ofstream tokens("tokens", std::ios::binary);
  for (int i = 0; i < 1000; ++i) {
    tokens.put(static_cast<char>(i % 13)).put(0);
  }
}

void expect_nothing_left() {
  require(fsdp2_log_set(FSDP2_LOG_OFF, nullptr, nullptr, nullptr), "log_set");
  if (fsdp2_live_handles() != 0) {
    report(std::to_string(fsdp2_live_handles()) + " live handles are left after a round");
  }
  if (count_lent() != 0) {
    report(std::to_string(count_lent()) + " loans have not come back after a round");
  }
}

// Half of the calls with everything right, half with something wrong.
void make_calls(Fuzzer& fuzzer, uint64_t seed, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    fuzzer.restart(mix(seed, i));
    fuzzer.call_any(fuzzer.random().one_in(2) ? 0 : 6);
  }
}

void round_of_one_thread(uint64_t seed, int /*threads*/) {
  clear_scratch();
  require(fsdp2_runtime_set_threads(1), "set_threads");
  Holdings holdings;
  Fuzzer fuzzer(holdings, kTimeoutMs, /*alone=*/true);
  make_calls(fuzzer, seed, kCalls);
  fuzzer.destroy_all();
  expect_nothing_left();
}

void round_of_threads(uint64_t seed, int threads) {
  clear_scratch();
  Holdings holdings;
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&holdings, own = mix(seed, static_cast<uint64_t>(i))] {
      require(fsdp2_runtime_set_threads(1), "set_threads");
      Fuzzer fuzzer(holdings, kTimeoutMs, /*alone=*/false);
      make_calls(fuzzer, own, kCalls / 2);
    });
  }
  for (std::thread& thread : running) {
    thread.join();
  }
  Fuzzer fuzzer(holdings, kTimeoutMs, /*alone=*/true);
  fuzzer.restart(seed);
  fuzzer.destroy_all();
  expect_nothing_left();
}

uint64_t join_pair(const std::string& rendezvous, int rank) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh{};
  options.rendezvous = rendezvous.c_str();
  options.rank = rank;
  options.world_size = 2;
  options.timeout_ms = kTimeoutMs;
  const fsdp2_status status = fsdp2_mesh_create(&options, &mesh);
  return status == FSDP2_OK ? mesh.id : 0;
}

// Both ranks make the same calls, but for a few that one of them leaves out or makes by itself: the
// other then waits in vain, and the mesh is spent.
void make_calls_as_rank(Fuzzer& fuzzer, uint64_t seed, uint64_t rank) {
  for (uint64_t i = 0; i < kCalls / 3; ++i) {
    Random own(mix(mix(seed, rank + 1), i));
    const bool strays = own.one_in(80);
    fuzzer.restart(strays ? own.next() : mix(seed, i));
    if (!strays || own.one_in(2)) {
      fuzzer.call_any(fuzzer.random().one_in(3) ? 6 : 0);
    }
  }
}

void round_of_ranks(uint64_t seed, int /*threads*/) {
  static std::atomic<int> next{0};
  clear_scratch();
  const std::string rendezvous = "thread://pair-" + std::to_string(next++);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([seed, rank, rendezvous] {
      require(fsdp2_runtime_set_threads(1), "set_threads");
      Holdings holdings;
      Fuzzer fuzzer(holdings, kTimeoutMs, /*alone=*/false);
      if (const uint64_t mesh = join_pair(rendezvous, rank)) {
        holdings.take("fsdp2_mesh", mesh);
      }
      make_calls_as_rank(fuzzer, seed, static_cast<uint64_t>(rank));
      fuzzer.destroy_all();
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
  expect_nothing_left();
}

}  // namespace

const std::vector<Mode>& modes() {
  static const std::vector<Mode> kModes = {
      {"one", round_of_one_thread}, {"threads", round_of_threads}, {"ranks", round_of_ranks}};
  return kModes;
}

}  // namespace fsdp2::fuzz
