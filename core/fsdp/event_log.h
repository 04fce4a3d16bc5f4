// What a tree's groups did, in order: the last kMaxEvents events. Cheap enough to be always on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::fsdp {

enum class EventKind {
  kAllGather,      // an all-gather was issued
  kUnshard,        // its parameters are there
  kReshard,        // they were freed, or cut to slices
  kReduceScatter,  // a reduction of gradients was issued
  kPostBackward,   // a group is done with this backward
};

struct Event {
  EventKind kind;
  std::string group;  // its unit's name
};

class EventLog {
 public:
  static constexpr size_t kMaxEvents = 1 << 14;

  struct Entry {
    EventKind kind;
    size_t group;  // index of the member
  };

  void record(EventKind kind, size_t group);
  std::vector<Entry> entries() const;  // oldest first
  // Counts every event since creation, those that fell out of the log included.
  int64_t total() const { return total_; }
  void clear();

 private:
  std::vector<Entry> ring_;  // a ring once it is full
  size_t begin_ = 0;
  int64_t total_ = 0;
};

}  // namespace fsdp2::fsdp
