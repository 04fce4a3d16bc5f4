#include "core/nn/computation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

#include "core/base/text_hash.h"

namespace fsdp2::nn {

std::string line_of(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().contiguous();
  const std::string_view bytes(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  return fmt::format("{} [{}] with checksum {:016x}", c10::toString(values.scalar_type()),
                     fmt::join(values.sizes(), ", "), hash_of_text(bytes));
}

}  // namespace fsdp2::nn
