#include "core/ckpt/safetensors/safetensors_parameters.h"

#include "core/base/error.h"
#include "core/ckpt/safetensors/rows.h"

namespace fsdp2::ckpt {

void SafetensorsParameters::read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
                                 at::Tensor out) {
  const SafetensorsEntry* entry = file_.find(name);
  FSDP2_CHECK(entry != nullptr, Code::kNotFound, "{}: no tensor {} in this file", file_.path(),
              name);
  read_rows(file_, *entry, shape, "the model", first_row, out);
}

}  // namespace fsdp2::ckpt
