// Which checkpoint a path stands for.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// The path of the checkpoint to go on from: `path` itself, the directory dcp in it if that holds
// one (all of a run, where `path` has the model alone for other programs), or the newest complete
// one in it if it is a directory of a series. Where there is none of these, `path`. Errors: kIo.
std::string find_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
