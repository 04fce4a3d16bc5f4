#include "core/nn/computation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "core/base/text_hash.h"
#include "core/nn/module.h"

namespace fsdp2::nn {

std::string line_of(const at::Tensor& tensor) {
  const std::string type =
      fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (tensor.is_meta() || has_no_memory(tensor)) {
    return type + " without values";
  }
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const std::string_view bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  return fmt::format("{} with checksum {:016x}", type, hash_of_text(bytes));
}

}  // namespace fsdp2::nn
