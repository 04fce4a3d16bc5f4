#include "core/nn/token_loss.h"

#include "core/base/error.h"

namespace fsdp2::nn {

const TokenLoss& token_loss(const Module& module, const char* purpose) {
  const auto* found = dynamic_cast<const TokenLoss*>(&module);
  FSDP2_CHECK(found != nullptr, Code::kUnsupported,
              "{}: expected a model that tells how many labels count in its loss, found {}",
              purpose, module.kind());
  return *found;
}

TokenLoss& token_loss(Module& module, const char* purpose) {
  return const_cast<TokenLoss&>(token_loss(static_cast<const Module&>(module), purpose));
}

}  // namespace fsdp2::nn
