#include "core/ckpt/formats/open_checkpoint.h"

#include "core/base/error.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/safetensors/safetensors_source.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/torch/pth_source.h"

namespace fsdp2::ckpt {

std::unique_ptr<StateSource> open_checkpoint(const std::string& given) {
  const std::string path = resolve_checkpoint(given);
  const CheckpointFormat format = detect_format(path);
  switch (format) {
    case CheckpointFormat::kDcpDirectory:
      return std::make_unique<DcpSource>(path);
    case CheckpointFormat::kHuggingFaceDirectory:
      return std::make_unique<SafetensorsSource>(path, SafetensorsFiles::kModelDirectory);
    case CheckpointFormat::kShardedSafetensors:
      return std::make_unique<SafetensorsSource>(path, SafetensorsFiles::kOnePerRank);
    case CheckpointFormat::kSafetensors:
      return std::make_unique<SafetensorsSource>(path, SafetensorsFiles::kOne);
    case CheckpointFormat::kPth:
      return std::make_unique<PthSource>(path, PthFiles::kOne);
    case CheckpointFormat::kPthPerRankDirectory:
      return std::make_unique<PthSource>(path, PthFiles::kOnePerRank);
    case CheckpointFormat::kDcpPartDirectory:
      break;
  }
  fail(Code::kUnsupported,
       "{}: is {}, whose parts are described rank by rank; save it with collectives, or convert it "
       "with torch.distributed.checkpoint first",
       path, format_name(format));
}

}  // namespace fsdp2::ckpt
