// Where checkpoints are kept: in the file system, and nowhere else yet.
#pragma once

#include <string>

namespace fsdp2::ckpt {

// kUnsupported for a path that begins with a scheme, such as s3://bucket/run.
void check_storage_path(const std::string& path);

}  // namespace fsdp2::ckpt
