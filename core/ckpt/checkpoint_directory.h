// Directories that hold one checkpoint each: how one comes into being as a whole, which of several
// is the newest, which may go.
//
//   out/step-00000100            a checkpoint
//   out/step-00000100.tmp-...    one that is being written, or was when its job died
//   out/step-00000100.old-...    one that is being replaced, where the file system cannot exchange
//                                two names at once; it counts as the checkpoint while that is
//                                missing
//
// Complete: a final name, `.metadata`, and, where there is a manifest, each of its files at its
// size. Errors are kIo and kNotFound with the path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp2::ckpt {

// Makes an empty directory beside `path` for its content to be written to, and what is missing
// above it. What a job that died left there is removed: of this path or, if it is a step of a
// series, of all steps; so one job at a time writes a series.
std::string make_temporary_directory(const std::string& path);

// Makes the temporary directory, whose files have been synced, the one at `path`. What was there is
// gone afterwards; a crash at any moment leaves the old or the new one.
void commit_directory(const std::string& temporary, const std::string& path);

// For after a failure; what cannot be removed stays.
void discard_directory(const std::string& temporary) noexcept;

// Whether the directory holds a complete checkpoint.
bool is_complete_checkpoint(const std::string& path);

// Where the checkpoint `path` lies: there, or moved aside by an interrupted replacement.
std::string resolve_checkpoint(const std::string& path);

// "step-00000100", and the number in such a name (without a directory).
std::string step_directory_name(int64_t step);
std::optional<int64_t> step_of_directory_name(const std::string& name);

// The path of the complete checkpoint with the highest step in `directory`; nullopt if there is
// none.
std::optional<std::string> find_latest_checkpoint(const std::string& directory);

// Removes all complete checkpoints of `directory` but the `count` with the highest steps.
// REQUIRES: count >= 1.
void keep_last_checkpoints(const std::string& directory, int64_t count);

}  // namespace fsdp2::ckpt
