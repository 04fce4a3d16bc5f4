#include "core/exported/program/program_weights.h"

#include <fmt/ranges.h>

#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

using ckpt::printable_name;

bool ProgramWeights::contains(const std::string& name) const {
  const NamedValue* value = archive_->find_weight(name);
  return value != nullptr && value->has_values;
}

void ProgramWeights::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                          at::Tensor out) {
  const NamedValue* value = archive_->find_weight(name);
  FSDP2_CHECK(value != nullptr, Code::kNotFound, "{}: no parameter {} in this file",
              archive_->path(), printable_name(name));
  FSDP2_CHECK(value->has_values, Code::kNotFound,
              "{}: the parameter {} was exported without values: load them from a checkpoint",
              archive_->path(), printable_name(name));
  FSDP2_CHECK(shape == at::IntArrayRef(value->tensor.shape), Code::kCorruptData,
              "{}: the parameter {} is [{}] there, expected [{}]", archive_->path(),
              printable_name(name), fmt::join(value->tensor.shape, ", "), fmt::join(shape, ", "));
  const auto [begin, rows] = nn::rows_of(shape, first_row, out);
  if (rows.numel() > 0) {
    archive_->read_box(*value, begin, rows);
  }
}

}  // namespace fsdp2::exported
