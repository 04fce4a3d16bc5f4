// One thread's random calls.
#pragma once

#include <cstdint>
#include <string>

#include "tests/fuzz/abi/arguments.h"
#include "tests/fuzz/abi/holdings.h"
#include "tests/fuzz/abi/random.h"

namespace fsdp2::fuzz {

class Fuzzer {
 public:
  // alone: no other thread uses the library, so that its live handles can be counted at any time.
  // holdings may be shared between threads.
  Fuzzer(Holdings& holdings, int64_t timeout_ms, bool alone);
  ~Fuzzer();
  Fuzzer(const Fuzzer&) = delete;
  Fuzzer& operator=(const Fuzzer&) = delete;

  // This thread's; null outside of fuzzing. Callbacks ask for it.
  static Fuzzer* current();

  // What follows depends on the seed alone, however many random numbers were used before.
  void restart(uint64_t seed) { random_ = Random(seed); }
  Random& random() { return random_; }
  Holdings& holdings() { return holdings_; }

  // A call of any function, with about one wrong argument in `wrong`; 0: none. Sometimes several
  // calls of which each needs the ones before it.
  void call_any(size_t wrong);
  fsdp2_status call(const std::string& function, size_t wrong);
  void destroy(const std::string& type, uint64_t id);
  void destroy_all();  // in any order

  // In a callback: up to three calls, some of them on what the call around it holds.
  void call_nested();

 private:
  Source source() { return {random_, holdings_, timeout_ms_}; }
  fsdp2_status make(Call& call);
  void take_outputs(const Call& call);
  void take_values(const Call& call, const Output& output);
  void let_go_of_stale_tensors();
  void sort_tensor(const std::string& maker, uint64_t id);
  void settle_loans(const Call& call, fsdp2_status status);
  void replenish();
  void drop_surplus();

  Holdings& holdings_;
  const int64_t timeout_ms_;
  const bool alone_;
  Random random_{0};
  int depth_ = 0;  // of calls inside callbacks
  Call* innermost_ = nullptr;
};

}  // namespace fsdp2::fuzz
