#include "core/ckpt/formats/open_checkpoint.h"

#include "core/ckpt/formats/format_table.h"
#include "core/ckpt/store/checkpoint_directory.h"

namespace fsdp2::ckpt {

std::unique_ptr<StateSource> open_checkpoint(const std::string& given) {
  const std::string path = resolve_checkpoint(given);
  return row_of(detect_format(path)).open(path);
}

}  // namespace fsdp2::ckpt
