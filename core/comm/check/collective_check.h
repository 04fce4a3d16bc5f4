// With FSDP2_DEBUG=detail, the ranks of a channel compare each collective before it runs: which one
// it is, of what shape and dtype, and for which parameter or unit. A difference is then an error on
// all of them that names it, in place of a hang, an abort of Gloo or wrong numbers. Without it,
// nothing of this costs anything.
//
//   check.announce("all_gather of Float [128] for model.norm.weight");
//   while (!check.all_have_announced()) ...
//   check.difference()   // "rank 0 has all_gather of ..., rank 1 has barrier"
//
// The ranks' words go through the store that they met at, whatever the transport is. A rank keeps
// its host waiting until all have announced a call. So all ranks have to make the calls of all
// their channels in one order, even where one channel could otherwise overtake another.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/meet/store.h"

namespace fsdp2 {

// What the environment asks for: FSDP2_DEBUG is detail (true), or off, empty or not set. Error:
// kInvalidArgument.
bool wants_detailed_checks();

class CollectiveCheck {
 public:
  // key: the channel's own. members: ranks in the world, in the order of the channel.
  CollectiveCheck(c10::intrusive_ptr<c10d::Store> store, const std::string& key, int rank,
                  std::vector<int> members);

  // What this rank is about to do, as its next call of the channel.
  void announce(const std::string& what);
  // Whether all ranks have announced that call. Pauses before it asks again.
  bool all_have_announced();
  // After that, the same on all ranks: how the first rank and the first other that differs from it
  // differ; nullopt if none does.
  std::optional<std::string> difference();
  // Those that have not announced the call: "rank 2 has not made call 7 of the group, after barrier
  // as call 6"; or that all have by now.
  std::string describe_missing();

  int64_t calls() const { return calls_; }

 private:
  std::string key(int64_t call, size_t member) const;
  std::string text_of(int64_t call, size_t member);

  const c10::intrusive_ptr<c10d::Store> store_;
  const std::string key_;
  const size_t rank_;
  const std::vector<int> members_;
  int64_t calls_ = 0;  // announced; the first is call 1
  std::string last_;   // what this rank announced before
  std::string what_;
  std::chrono::microseconds pause_{0};
};

}  // namespace fsdp2
