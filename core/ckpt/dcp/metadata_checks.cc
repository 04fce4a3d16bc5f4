#include "core/ckpt/dcp/metadata_checks.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// A file of the directory itself, on whatever system, whose name can stand in a message.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\:") == std::string_view::npos && printable_name(name) == name;
}

std::string find_fault_in_storage(const DcpStorage& storage) {
  if (!is_plain_file_name(storage.relative_path)) {
    return fmt::format("lies in the file \"{}\", which is not a plain name in the directory",
                       printable_name(storage.relative_path));
  }
  int64_t end = 0;
  if (storage.offset < 0 || storage.length < 0 ||
      __builtin_add_overflow(storage.offset, storage.length, &end)) {
    return fmt::format("lies at {} with {} bytes in {}", storage.offset, storage.length,
                       printable_name(storage.relative_path));
  }
  return "";
}

}  // namespace

std::string find_fault(const DcpEntry& entry) {
  if (entry.tensor) {
    if (std::string fault = find_fault(*entry.tensor); !fault.empty()) {
      return fault;
    }
  }
  const size_t items = entry.tensor ? entry.tensor->chunks.size() : 1;
  if (entry.storage.size() != items) {
    return fmt::format("has {} items, but places for {}", items, entry.storage.size());
  }
  for (const DcpStorage& storage : entry.storage) {
    if (std::string fault = find_fault_in_storage(storage); !fault.empty()) {
      return fault;
    }
  }
  return "";
}

}  // namespace fsdp2::ckpt
