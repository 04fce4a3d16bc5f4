#include "core/nn/own_generator.h"

namespace fsdp2::nn {

std::optional<at::Generator> own_generator_of(const Module& module) {
  const auto* own = dynamic_cast<const OwnGenerator*>(&module);
  return own == nullptr ? std::nullopt : own->own_generator();
}

}  // namespace fsdp2::nn
