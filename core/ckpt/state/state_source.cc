#include "core/ckpt/state/state_source.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/value/printable_name.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/ckpt/safetensors/safetensors_source.h"

namespace fsdp2::ckpt {

const StateEntry* StateSource::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void StateSource::set_entries(std::vector<StateEntry> entries) {
  entries_ = std::move(entries);
  for (size_t i = 0; i < entries_.size(); ++i) {
    FSDP2_CHECK(index_.emplace(entries_[i].name, i).second, Code::kCorruptData,
                "{}: has the name {} twice", path_, printable_name(entries_[i].name));
  }
}

at::Tensor read_whole(const StateSource& source, const StateEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, *entry.dtype);
  source.read(entry, std::vector<int64_t>(entry.shape.size(), 0), tensor);
  return tensor;
}

std::unique_ptr<StateSource> open_state_source(const std::string& given) {
  const std::string path = resolve_checkpoint(given);
  const CheckpointFormat format = detect_format(path);
  switch (format) {
    case CheckpointFormat::kDcpDirectory:
      return std::make_unique<DcpSource>(path);
    case CheckpointFormat::kHuggingFaceDirectory:
    case CheckpointFormat::kShardedSafetensors:
    case CheckpointFormat::kSafetensors:
      return std::make_unique<SafetensorsSource>(path, format);
    case CheckpointFormat::kPth:
    case CheckpointFormat::kPthPerRankDirectory:
      return std::make_unique<PthSource>(path, format);
    case CheckpointFormat::kDcpPartDirectory:
      break;
  }
  fail(Code::kUnsupported,
       "{}: is {}, whose parts are described rank by rank; save it with collectives, or convert it "
       "with torch.distributed.checkpoint first",
       path, format_name(format));
}

}  // namespace fsdp2::ckpt
