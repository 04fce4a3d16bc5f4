// Options that several calls of checkpoint.h take.
#pragma once

#include <cstdint>

#include "core/ckpt/formats/checkpoint_format.h"

namespace fsdp2::capi {

ckpt::CheckpointFormat read_format(int32_t format);
// 0 is 5 GiB.
int64_t read_file_bytes(int64_t bytes);
void check_reserved(int32_t reserved);

}  // namespace fsdp2::capi
