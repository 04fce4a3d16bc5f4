// Memory that the processes of a group on one machine share: for each rank a ring of bytes, which
// that rank alone writes and all others read, and a bell to sleep at.
//
// A rank's stream of bytes goes through its ring; `written` counts what it has put in, `read` what
// each other rank has taken out. Both only grow, and differ by at most kRingBytes.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/comm/transport/own_file.h"

namespace fsdp2 {

class SharedSegment {
 public:
  // Small enough to stay in a cache that the ranks share, large enough for what is sent while the
  // readers are busy.
  static constexpr uint64_t kRingBytes = uint64_t{4} << 20;

  // Collective over the group; `store` holds nothing but this group's keys. Null, on all ranks
  // alike, if they share no memory: on several machines, in separate containers, or without room in
  // /dev/shm. Errors: kTimeout, what the store throws.
  static std::unique_ptr<SharedSegment> open(c10d::Store& store, int rank, int size,
                                             std::chrono::milliseconds timeout);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  std::byte* ring(int rank) const;
  std::atomic<uint64_t>& written(int rank) const;
  std::atomic<uint64_t>& read(int rank, int reader) const;

  // Wakes all sleepers, after a change of written or read.
  void ring_bell() const;
  uint32_t bell() const;  // changes with each ring
  // Sleeps until the bell is no longer `seen`, at most for `time`. May return early.
  void sleep(uint32_t seen, std::chrono::microseconds time) const;

  // Whether the rank's process has ended or has closed the segment.
  bool has_left(int rank) const;

 private:
  struct Header;
  struct Counter;
  SharedSegment(std::unique_ptr<OwnFile> file, std::byte* base, int size);
  static size_t bytes_for(int size);
  static std::unique_ptr<SharedSegment> create(const std::string& path, int size);
  static std::unique_ptr<SharedSegment> map(const std::string& path, int flags, int rank, int size);
  Header& header() const;

  std::unique_ptr<OwnFile> file_;
  std::byte* base_;
  int size_;
};

}  // namespace fsdp2
