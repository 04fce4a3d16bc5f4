#include "core/ckpt/state/state_source.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

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

namespace {

// LibTorch says how many bytes it wanted, but not what for: a file may ask for any number.
at::Tensor memory_for(const StateSource& source, const StateEntry& entry, at::IntArrayRef sizes) {
  try {
    return at::empty(sizes, at::device(at::kCPU).dtype(*entry.dtype));
  } catch (...) {
    const Error error = current_exception_as_error();
    FSDP2_CHECK(error.code() == Code::kOutOfMemory, error.code(), "{}: {}: {}", source.path(),
                printable_name(entry.name), error.message());
    fail(Code::kOutOfMemory, "{}: {}: there is no memory for [{}] of {}", source.path(),
         printable_name(entry.name), fmt::join(sizes, ", "), c10::toString(*entry.dtype));
  }
}

}  // namespace

at::Tensor read_whole(const StateSource& source, const StateEntry& entry) {
  return read_box(source, entry, std::vector<int64_t>(entry.shape.size(), 0), entry.shape);
}

at::Tensor read_box(const StateSource& source, const StateEntry& entry, at::IntArrayRef begin,
                    at::IntArrayRef sizes) {
  const at::Tensor box = memory_for(source, entry, sizes);
  source.read(entry, begin, box);
  return box;
}

}  // namespace fsdp2::ckpt
