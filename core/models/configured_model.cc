#include "core/models/configured_model.h"

#include "core/base/error.h"

namespace fsdp2::models {

const ConfiguredModel& configured_model(const nn::Module& module, const char* purpose) {
  const auto* configured = dynamic_cast<const ConfiguredModel*>(&module);
  FSDP2_CHECK(configured != nullptr, Code::kUnsupported,
              "{}: expected a model that a config.json describes, found {}, which has none",
              purpose, module.kind());
  return *configured;
}

}  // namespace fsdp2::models
