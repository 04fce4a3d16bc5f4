// Short texts and counters under names that all ranks of a team see, by way of the store they met
// at. No call waits for another rank, and none uses the ranks' connections: a background thread may
// call while training communicates.
#pragma once

#include <cstdint>
#include <string>

#include "core/comm/team.h"

namespace fsdp2 {

// Any thread. Errors of all calls, when the store is lost with the process that keeps it:
// kPeerFailed if a rank has failed, with its text, else kComm.
class SharedNotes {
 public:
  // `purpose`: what the notes are for, with which errors begin.
  SharedNotes(Team& team, std::string purpose) : team_(team), purpose_(std::move(purpose)) {}

  void put(const std::string& name, const std::string& text);
  bool has(const std::string& name);
  // REQUIRES: it is there; else it waits like the store.
  std::string get(const std::string& name);
  // Adds to a counter, which begins at 0, and returns what it then is.
  int64_t count(const std::string& name, int64_t more);
  void remove(const std::string& name);

 private:
  template <typename Question>
  auto ask(const Question& question);

  Team& team_;
  std::string purpose_;
};

}  // namespace fsdp2
