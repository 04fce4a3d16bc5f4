// What ranks tell each other while checkpoints are written: short texts that a background
// thread can exchange while training communicates; see shared_notes.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/comm/shared_notes.h"
#include "core/comm/world.h"

namespace fsdp2::ckpt {

// One save. Ranks make theirs in the same order. Any thread, one at a time but for note_progress.
// Errors of all calls: kPeerFailed or kComm when the store is lost.
class RankExchange {
 public:
  explicit RankExchange(World& world);

  void put(const std::string& key, const std::string& text);
  // Waits for a text, as long as some rank notes progress and then for the world's time-out.
  // Errors: kPeerFailed when a rank has failed meanwhile, kTimeout; both say what was waited for.
  std::string get(const std::string& key, const std::string& what);
  void remove(const std::string& key);

  // Tells those who wait that this rank is at work. Cheap enough for every tensor written.
  void note_progress();

  // What the last text of all was is known to this rank.
  void note_read();
  // Until `ranks` other ranks have noted that, for a few seconds at most: the process that keeps
  // the store may end then, and with it what the others have not read. Whether they all have.
  bool wait_until_read_by(int ranks);

 private:
  std::string full(const std::string& key) const;
  int64_t count(const char* key, int64_t more);

  World& world_;
  SharedNotes notes_;
  int64_t number_;
  std::atomic<std::chrono::steady_clock::rep> next_note_{0};
};

}  // namespace fsdp2::ckpt
