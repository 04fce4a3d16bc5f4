#include "core/models/language_model.h"

#include "core/base/error.h"

namespace fsdp2::models {

const LanguageModel* find_language_model(const nn::Module& module) {
  return dynamic_cast<const LanguageModel*>(&module);
}

const LanguageModel& language_model(const nn::Module& module, const char* purpose) {
  const LanguageModel* found = find_language_model(module);
  FSDP2_CHECK(found != nullptr, Code::kUnsupported,
              "{}: expected a causal language model, found {}, which has no vocabulary", purpose,
              module.kind());
  return *found;
}

LanguageModel& language_model(nn::Module& module, const char* purpose) {
  return const_cast<LanguageModel&>(
      language_model(static_cast<const nn::Module&>(module), purpose));
}

}  // namespace fsdp2::models
