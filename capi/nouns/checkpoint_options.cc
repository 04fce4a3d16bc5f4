#include "capi/nouns/checkpoint_options.h"

#include <limits>

#include "capi/argument.h"
#include "include/fsdp2/checkpoint.h"

namespace fsdp2::capi {

namespace {

constexpr int64_t kDefaultFileBytes = int64_t{5} << 30;

}  // namespace

ckpt::CheckpointFormat read_format(int32_t format) {
  switch (format) {
    case FSDP2_CHECKPOINT_SHARDED:
      return ckpt::CheckpointFormat::kDcpDirectory;
    case FSDP2_CHECKPOINT_SAFETENSORS:
      return ckpt::CheckpointFormat::kSafetensors;
    case FSDP2_CHECKPOINT_PTH:
      return ckpt::CheckpointFormat::kPth;
    case FSDP2_CHECKPOINT_MODEL_DIRECTORY:
      return ckpt::CheckpointFormat::kHuggingFaceDirectory;
    case FSDP2_CHECKPOINT_PTH_PER_RANK:
      return ckpt::CheckpointFormat::kPthPerRankDirectory;
    default:
      fail(Code::kInvalidArgument,
           "options.format: expected FSDP2_CHECKPOINT_SHARDED (0) to _PTH_PER_RANK (4), found {}",
           format);
  }
}

int64_t read_file_bytes(int64_t bytes) {
  check_integer(bytes, 0, std::numeric_limits<int64_t>::max(), "options.max_file_bytes");
  return bytes == 0 ? kDefaultFileBytes : bytes;
}

void check_reserved(int32_t reserved) {
  FSDP2_CHECK(reserved == 0, Code::kInvalidArgument, "options.reserved: expected 0, found {}",
              reserved);
}

}  // namespace fsdp2::capi
