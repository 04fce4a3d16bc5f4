#include "core/ckpt/torch/pth_parameters.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/ckpt/torch/pth_file.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

PthParameters::PthParameters(const std::string& path, const std::string& prefix) : archive_(path) {
  for (const PthTensor& found : list_tensors(archive_.root())) {
    if (found.name.compare(0, prefix.size(), prefix) != 0) {
      continue;
    }
    const std::string name = found.name.substr(prefix.size());
    FSDP2_CHECK(tensors_.emplace(name, found.tensor).second, Code::kCorruptData,
                "{}: two tensors are named {}", path, printable_name(name));
  }
}

std::vector<std::string> PthParameters::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) {
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

const StoredTensor* PthParameters::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

void PthParameters::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                         at::Tensor out) {
  const StoredTensor* tensor = find(name);
  FSDP2_CHECK(tensor != nullptr, Code::kNotFound, "{}: no tensor {} in this file", archive_.label(),
              printable_name(name));
  FSDP2_CHECK(shape == at::IntArrayRef(tensor->shape), Code::kCorruptData,
              "{}: the model says [{}], {} has [{}]", printable_name(name), fmt::join(shape, ", "),
              archive_.label(), fmt::join(tensor->shape, ", "));
  const auto [begin, rows] = nn::rows_of(shape, first_row, out);
  if (rows.numel() == 0) {
    return;
  }
  FSDP2_CHECK(rows.dim() == static_cast<int64_t>(shape.size()) &&
                  (shape.empty() || rows.sizes().slice(1) == shape.slice(1)),
              Code::kInvalidArgument,
              "{}: cannot read rows from {} on of [{}] into a tensor of [{}]", printable_name(name),
              first_row, fmt::join(shape, ", "), fmt::join(out.sizes(), ", "));
  archive_.read_box(*tensor, begin, rows);
}

}  // namespace fsdp2::ckpt
