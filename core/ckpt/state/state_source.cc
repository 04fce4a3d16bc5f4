#include "core/ckpt/state/state_source.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

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
  at::Tensor tensor = at::empty(entry.shape, at::device(at::kCPU).dtype(*entry.dtype));
  source.read(entry, std::vector<int64_t>(entry.shape.size(), 0), tensor);
  return tensor;
}

}  // namespace fsdp2::ckpt
