// How directories beside a checkpoint are named while it comes and goes, and what is done by name.
// See checkpoint_directory.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

inline constexpr char kMovedAside[] = ".old-";

// A name beside `path` that nobody has; `kind` is kTemporary or kMovedAside.
std::string beside(const std::string& path, const char* kind);

// Makes the directory and those above it, so that a crash of the machine keeps them. kIo.
void make_directories(const std::string& path);

// Removes a directory that nobody waits for. What cannot be removed stays, under a name that does
// not count as a checkpoint and with a warning: that is no reason to fail a save.
void remove_leftover(const std::string& path) noexcept;

}  // namespace fsdp2::ckpt
