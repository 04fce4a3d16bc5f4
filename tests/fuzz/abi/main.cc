// Random calls of all functions of the C ABI, valid and invalid: see --help.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/abi/outcomes.h"
#include "tests/fuzz/abi/random.h"
#include "tests/fuzz/abi/rounds.h"
#include "tests/fuzz/abi/scratch.h"
#include "tests/fuzz/abi/values.h"

namespace fsdp2::fuzz {

namespace {

constexpr const char* kHelp =
    "abi_fuzz: makes random calls of all functions of the C ABI, and checks what has to be true of "
    "each\n"
    "  --seconds N     how long, over all modes (60)\n"
    "  --mode MODE     one, threads, ranks or all (all)\n"
    "  --threads N     that share handles in the mode of that name (4)\n"
    "  --seed N        of the rounds (random)\n"
    "  --replay N      one round with this seed, in --mode (one), and each call printed\n"
    "  --outcomes 1    how often each function ended with which status\n";

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
constexpr int64_t kLimitMs = (kTimeoutMs + 5000) * (kSanitized ? 4 : 1);
// What a process may grow by in the second half of its rounds. In the first, LibTorch fills its
// caches of kernels, by as much as 25 MB at a time.
constexpr int64_t kMaxGrowth = int64_t{64} << 20;
constexpr size_t kWindow = 20;  // rounds, of which the least counts

struct Flags {
  double seconds = 60;
  std::string mode = "all";
  int threads = 4;
  uint64_t seed = std::random_device()();
  std::optional<uint64_t> replay;
  bool outcomes = false;
};

[[noreturn]] void refuse(const std::string& argument) {
  std::cerr << argument << ": unknown\n" << kHelp;
  std::exit(2);
}

// --name value or --name=value; the last one counts.
std::map<std::string, std::string> read_pairs(int argc, char** argv) {
  std::map<std::string, std::string> pairs;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals != std::string::npos) {
      pairs[argument.substr(0, equals)] = argument.substr(equals + 1);
    } else if (i + 1 < argc) {
      pairs[argument] = argv[++i];
    } else {
      refuse(argument);
    }
  }
  return pairs;
}

Flags read_flags(int argc, char** argv) {
  Flags flags;
  for (const auto& [name, value] : read_pairs(argc, argv)) {
    if (name == "--seconds") {
      flags.seconds = std::stod(value);
    } else if (name == "--mode") {
      flags.mode = value;
    } else if (name == "--threads") {
      flags.threads = std::stoi(value);
    } else if (name == "--seed") {
      flags.seed = std::stoull(value);
    } else if (name == "--outcomes") {
      flags.outcomes = value == "1";
    } else if (name == "--replay") {
      flags.replay = std::stoull(value);
    } else {
      refuse(name);
    }
  }
  return flags;
}

int64_t resident_bytes() {
  ::malloc_trim(0);
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// Where nothing is held, memory must not grow from round to round.
class Memory {
 public:
  void sample() {
    samples_.push_back(resident_bytes());
    const size_t count = samples_.size();
    if (kSanitized || count < 4 * kWindow) {
      return;
    }
    const int64_t middle = least(count / 2);
    const int64_t end = least(count - kWindow);
    if (end - middle > kMaxGrowth) {
      report("memory has grown from " + std::to_string(middle >> 20) + " to " +
             std::to_string(end >> 20) + " MiB in " + std::to_string(count / 2) + " rounds");
    }
  }
  int64_t last_mib() const { return samples_.empty() ? 0 : samples_.back() >> 20; }

 private:
  int64_t least(size_t first) const {
    const auto begin = samples_.begin() + static_cast<std::ptrdiff_t>(first);
    return *std::min_element(begin, begin + kWindow);
  }

  std::vector<int64_t> samples_;
};

void run_mode(const Mode& mode, double seconds, const Flags& flags) {
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::duration<double> limit(seconds);
  Memory memory;
  uint64_t rounds = 0;
  for (; std::chrono::steady_clock::now() - begin < limit; ++rounds) {
    const uint64_t seed = mix(flags.seed, rounds) >> 16;
    set_replay("abi_fuzz --mode " + std::string(mode.name) + " --threads " +
               std::to_string(flags.threads) + " --replay " + std::to_string(seed));
    mode.round(seed, flags.threads);
    memory.sample();
  }
  std::cout << "passed: " << mode.name << ": " << rounds << " rounds, " << calls_made()
            << " calls so far, " << memory.last_mib() << " MiB" << std::endl;
}

std::vector<Mode> modes_of(const Flags& flags) {
  const std::string asked = flags.replay && flags.mode == "all" ? "one" : flags.mode;
  std::vector<Mode> found;
  for (const Mode& mode : modes()) {
    if (asked == "all" || asked == mode.name) {
      found.push_back(mode);
    }
  }
  if (found.empty()) {
    refuse("--mode " + asked);
  }
  return found;
}

int run(const Flags& flags) {
  const std::string unknown = find_unknown_variable();
  if (!unknown.empty()) {
    std::cerr << unknown << ": tests/fuzz/abi/values.cc has no values for it\n";
    return 1;
  }
  for (const char* variable : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
                               "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"}) {
    ::unsetenv(variable);
  }
  const std::vector<Mode> modes = modes_of(flags);
  enter_scratch();
  start_watch(kLimitMs);
  for (const Mode& mode : modes) {
    if (flags.replay) {
      print_calls(true);
      mode.round(*flags.replay, flags.threads);
    } else {
      run_mode(mode, flags.seconds / static_cast<double>(modes.size()), flags);
    }
  }
  if (flags.outcomes) {
    print_outcomes(std::cout);
  }
  print_never_succeeded(std::cout);
  return 0;
}

}  // namespace

}  // namespace fsdp2::fuzz

int main(int argc, char** argv) {
  // Libraries read these when the program starts. OpenMP's threads spin at their barriers: where
  // cores are busy, for longer than a call may take. oneDNN and what LibTorch has around it keep
  // 1024 shapes of products each, some with 250 KB, which would pass for memory that grows, as
  // would what malloc keeps for each thread.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16", 1);
    ::setenv("LRU_CACHE_CAPACITY", "16", 1);
    ::setenv("MALLOC_ARENA_MAX", "1", 1);
    ::execv("/proc/self/exe", argv);
  }
  const fsdp2::fuzz::Flags flags = fsdp2::fuzz::read_flags(argc, argv);
  std::cout << "seed " << flags.seed << std::endl;
  return fsdp2::fuzz::run(flags);
}
