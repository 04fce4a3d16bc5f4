// What ranks tell each other while checkpoints are written: short texts that a background
// thread can exchange while training communicates; see shared_notes.h.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/comm/shared_notes.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

// One save. Ranks make theirs in the same order. Any thread, one at a time but for note_progress.
//
// Whoever waits for a rank gives up when that rank has not got on for the job's time-out, however
// busy the others are. A rank gets on while it writes, and while it waits for all ranks' texts: it
// is then late only because another one is, which it names itself.
//
// Errors of all calls: kPeerFailed or kComm when the store is lost, kTimeout when the process that
// keeps it does not answer.
class RankExchange {
 public:
  explicit RankExchange(Team& team);

  // What a rank has told, or why nothing was heard of it.
  struct Answer {
    std::string text;
    std::optional<Error> error;
  };

  void put(const std::string& key, const std::string& text);
  // Waits for a text that `rank` puts there, as long as that rank gets on. `what` ends the sentence
  // "waited 6.0 s for rank 0 ...": "to make the directory". Errors: kPeerFailed when a rank has
  // failed meanwhile, kTimeout.
  std::string get(const std::string& key, int rank, const std::string& what);
  // Waits so for the texts of all ranks at once, this one's among them. In rank order.
  std::vector<Answer> get_of_all(const std::function<std::string(int rank)>& key_of,
                                 const std::string& what);
  void remove(const std::string& key);

  // Tells those who wait for this rank that it is at work. Cheap enough for every tensor written.
  void note_progress();

  // What the last text of all was is known to this rank.
  void note_read();
  // Until `ranks` other ranks have noted that, for a few seconds at most: the process that keeps
  // the store may end then, and with it what the others have not read. Whether they all have.
  bool wait_until_read_by(int ranks);

 private:
  class Wait;

  std::string full(const std::string& key) const;
  int64_t count(const std::string& key, int64_t more);

  Team& team_;
  SharedNotes notes_;
  int64_t number_;
  std::atomic<std::chrono::steady_clock::rep> next_note_{0};
};

}  // namespace fsdp2::ckpt
