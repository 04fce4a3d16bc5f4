// How files and directories are named that stand in for what is being written, until it is whole:
// by whose process they are, so that they can be removed when that has ended. Without LibTorch.
#pragma once

#include <sys/types.h>

#include <string>

namespace fsdp2 {

inline constexpr char kTemporary[] = ".tmp-";

// "1a2b-", with which the rest of such a name begins.
std::string process_mark(pid_t process);

// Whether a process that lives holds a lock (flock) on the file or directory. On a volume of
// several machines or containers, processes of theirs may have the same number. False if it cannot
// be read.
bool is_locked(const std::string& path) noexcept;

// Removes what a process that has ended has left of what it wrote to `path`: beside that and, where
// it is a directory, in it. A symbolic link stands for what it points to. What is locked (flock) is
// another's whose process has the same number, and stays, as does what cannot be removed.
void remove_temporaries(const std::string& path, pid_t process) noexcept;

}  // namespace fsdp2
