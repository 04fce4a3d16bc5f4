#include "core/ckpt/state/memory_source.h"

#include <fmt/ranges.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/bytes/tensor_box.h"
#include "core/ckpt/value/box.h"

namespace fsdp2::ckpt {

MemorySource::MemorySource(StateDict state)
    : StateSource("the state in memory"), state_(std::move(state)) {
  state_.check_has_memory();
  std::vector<StateEntry> entries;
  for (const StateTensor& tensor : state_.tensors) {
    FSDP2_CHECK(tensor.local.sizes() == at::IntArrayRef(tensor.shape), Code::kInvalidArgument,
                "{} is [{}] in memory, all of it is [{}]: gather it first", tensor.name,
                fmt::join(tensor.local.sizes(), ", "), fmt::join(tensor.shape, ", "));
    entries.push_back(
        {tensor.name, tensor.path, tensor.local.scalar_type(), tensor.shape, entries.size()});
  }
  for (const StateObject& object : state_.objects) {
    entries.push_back({object.name, object.path, std::nullopt, {}, entries.size()});
  }
  set_entries(std::move(entries));
}

void MemorySource::read(const StateEntry& entry, at::IntArrayRef begin,
                        const at::Tensor& out) const {
  FSDP2_CHECK(entry.dtype && begin.size() == entry.shape.size() &&
                  out.dim() == static_cast<int64_t>(begin.size()) &&
                  is_readable_as(*entry.dtype, out.scalar_type()),
              Code::kInvalidArgument, "{}: {} has {} dims, a box of {} was asked for as {}", path(),
              entry.name, entry.shape.size(), begin.size(), c10::toString(out.scalar_type()));
  out.copy_(narrowed(state_.tensors[entry.index].local, begin, out.sizes()));
}

PythonValue MemorySource::read_object(const StateEntry& entry) const {
  FSDP2_CHECK(!entry.dtype, Code::kInvalidArgument, "{}: {} is a tensor, expected an object",
              path(), entry.name);
  return state_.objects[entry.index - state_.tensors.size()].value;
}

}  // namespace fsdp2::ckpt
