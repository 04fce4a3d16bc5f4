// Where tests put files that they write over and over: in memory, because a disk waits for each.
#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>

namespace fsdp2::fuzz {

// /dev/shm where it has room for a test's files; other programs of the machine may have filled it,
// and containers give it little.
inline const char* memory_disk() {
  constexpr unsigned long long kRoom = 64 << 20;
  constexpr const char* kShared = "/dev/shm";
  struct statvfs disk{};
  if (::access(kShared, W_OK) == 0 && ::statvfs(kShared, &disk) == 0 &&
      1ULL * disk.f_bavail * disk.f_frsize >= kRoom) {
    return kShared;
  }
  const char* const given = std::getenv("TMPDIR");
  return given != nullptr ? given : "/tmp";
}

}  // namespace fsdp2::fuzz
