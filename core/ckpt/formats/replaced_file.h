// What a checkpoint in one file would take the place of.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// kIo if a file is at `to` that is somebody's, as one that is no checkpoint is (tokens, too, are in
// files whose names end in .bin), or that is a part of a checkpoint, be it the one that is read or
// another. A checkpoint that is one file may be replaced.
void check_may_replace_file(const std::string& to);

}  // namespace fsdp2::ckpt
