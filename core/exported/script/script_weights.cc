#include "core/exported/script/script_weights.h"

#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

void ScriptWeights::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                         at::Tensor out) {
  const auto found = tensors_.find(name);
  FSDP2_CHECK(found != tensors_.end(), Code::kNotFound, "{}: no parameter {} in this file",
              archive_->path(), ckpt::printable_name(name));
  const ckpt::StoredTensor& tensor = found->second;
  FSDP2_CHECK(shape == at::IntArrayRef(tensor.shape), Code::kCorruptData,
              "{}: the parameter {} is [{}] there, expected [{}]", archive_->path(),
              ckpt::printable_name(name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  const auto [begin, rows] = nn::rows_of(shape, first_row, out);
  if (rows.numel() > 0) {
    archive_->read_box(tensor, begin, rows);
  }
}

}  // namespace fsdp2::exported
