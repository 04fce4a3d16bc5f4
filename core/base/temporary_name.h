// How files and directories are named that stand in for what is being written, until it is whole:
// by whose process they are, so that they can be removed when that has ended. Without LibTorch.
#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp2 {

inline constexpr char kTemporary[] = ".tmp-";

// "1a2b-9c3f0d81-", with which the rest of such a name begins: the number of a process, and a mark
// of the container or machine that counts it, as others may share the directory.
std::string process_mark(pid_t process);

// Whether a process that lives, here or on another machine that has the volume, holds a lock
// (flock, LOCK_EX) on the file or directory. False if it cannot be read.
bool is_locked(const std::string& path) noexcept;

// Removes what a process that has ended has left of what it wrote to `path`: beside that and, where
// it is a directory, in it. A symbolic link stands for what it points to. What is locked (flock) is
// of a newer process with the same number, and stays, as does what cannot be removed.
void remove_temporaries(const std::string& path, pid_t process) noexcept;

}  // namespace fsdp2
