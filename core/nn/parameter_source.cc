#include "core/nn/parameter_source.h"

#include <algorithm>
#include <utility>

namespace fsdp2::nn {

const std::string& name_in(const ParameterSource& source, const std::vector<std::string>& names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](const std::string& name) { return source.contains(name); });
  return found == names.end() ? names.front() : *found;
}

ParameterRows rows_of(at::IntArrayRef shape, int64_t first_row, const at::Tensor& out) {
  if (shape.empty()) {
    return {{}, out.dim() == 1 && out.numel() == 1 ? out.squeeze(0) : out};
  }
  std::vector<int64_t> begin(shape.size(), 0);
  begin[0] = first_row;
  return {std::move(begin), out};
}

}  // namespace fsdp2::nn
