// What ranks tell each other while checkpoints are written: short texts by way of the store, so
// that a background thread can take part while training communicates.
#pragma once

#include <cstdint>
#include <string>

#include "core/comm/world.h"

namespace fsdp2::ckpt {

// One save. Ranks make theirs in the same order. Any thread, one at a time.
class RankExchange {
 public:
  explicit RankExchange(World& world);

  void put(const std::string& key, const std::string& text);
  // Waits for a text. Errors: kPeerFailed when a rank has failed meanwhile, kTimeout; both say what
  // was waited for.
  std::string get(const std::string& key, const std::string& what);
  void remove(const std::string& key);

 private:
  std::string full(const std::string& key) const;

  World& world_;
  int64_t number_;
};

}  // namespace fsdp2::ckpt
