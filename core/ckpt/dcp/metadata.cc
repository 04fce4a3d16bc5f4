#include "core/ckpt/dcp/metadata.h"

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

const DcpEntry* DcpMetadata::find(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void DcpMetadata::add(DcpEntry entry) {
  FSDP2_CHECK(index_.emplace(entry.name, entries_.size()).second, Code::kInvalidArgument,
              "{} is in the checkpoint's metadata twice", printable_name(entry.name));
  entries_.push_back(std::move(entry));
}

}  // namespace fsdp2::ckpt
