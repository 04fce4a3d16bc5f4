// Rounds of some hundred calls. A round begins with nothing, follows from its seed, destroys what
// it has made, and checks that nothing is left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::fuzz {

struct Mode {
  const char* name;
  void (*round)(uint64_t seed, int threads);
};

// One thread, whose calls can be made again; threads that share handles; two ranks that are
// threads, whose calls at times are not the same.
const std::vector<Mode>& modes();

// The time-out of every mesh that a round makes.
constexpr int64_t kTimeoutMs = 300;

}  // namespace fsdp2::fuzz
