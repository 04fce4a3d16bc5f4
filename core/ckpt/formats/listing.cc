#include "core/ckpt/formats/listing.h"

#include "core/ckpt/formats/format_table.h"

namespace fsdp2::ckpt {

CheckpointListing list_checkpoint(const std::string& path) {
  const CheckpointFormat format = detect_format(path);
  CheckpointListing listing{format, row_of(format).list(path), 0};
  for (const ListedTensor& tensor : listing.tensors) {
    listing.bytes += tensor.bytes;
  }
  return listing;
}

}  // namespace fsdp2::ckpt
