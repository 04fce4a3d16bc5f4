// Directories that hold one checkpoint each: whether one is whole, which of several is the newest,
// which may go. How one comes into being: pending_directory.h.
//
//   out/step-00000100            a checkpoint
//   out/step-00000100.tmp-...    one that is being written or removed, or was when its job died
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

// Whether the directory holds a complete checkpoint.
bool is_complete_checkpoint(const std::string& path);

// Where the checkpoint `path` lies, of whatever format: there, or moved aside by an interrupted
// replacement.
std::string resolve_checkpoint(const std::string& path);

// "step-00000100", and the number in such a name (without a directory).
std::string step_directory_name(int64_t step);
std::optional<int64_t> step_of_directory_name(const std::string& name);

// The path of the complete checkpoint with the highest step in `directory`; nullopt if there is
// none. One with a higher step that is not complete is worth a warning.
std::optional<std::string> find_latest_checkpoint(const std::string& directory);

// That of the complete checkpoint beside `path` with the highest step below its own; nullopt if
// there is none, or if `path` is of no series.
std::optional<std::string> find_checkpoint_before(const std::string& path);

// After `path` has been saved: of it and the complete checkpoints beside it with lower steps only
// the `count` with the highest steps stay. Those with higher steps are of a run that was given up
// when an earlier step was gone on from: they are neither counted nor removed, and stay the latest
// until this run has passed them, which is worth a warning. What cannot be removed stays.
// REQUIRES: count >= 1.
void keep_last_checkpoints(const std::string& path, int64_t count);

}  // namespace fsdp2::ckpt
