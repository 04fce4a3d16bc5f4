#include "core/base/error.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

Layer make_sequential(const LayerOptions& options, const LayerSettings& settings) {
  return new_layer(options.kind(), settings, {1, 1}, [](CustomModule& self, const Values& inputs) {
    c10::IValue x = inputs[0];
    for (const auto& [name, child] : self.child_modules()) {
      x = (*child)(Values{std::move(x)});
    }
    return x;
  });
}

Layer make_module_list(const LayerOptions& options, const LayerSettings& settings) {
  return new_layer(
      options.kind(), settings, {}, [](CustomModule& self, const Values&) -> c10::IValue {
        fail(Code::kUnsupported, "a {} only holds modules: call them, not the list", self.kind());
      });
}

}  // namespace fsdp2::nn
