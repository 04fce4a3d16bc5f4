// Layers that the library has.
#include "core/nn/stock/layer.h"

#include <string>

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/nouns/module/give_custom.h"
#include "include/fsdp2/custom.h"

namespace fsdp2::capi {

namespace {

uint64_t create_layer(const char* kind, const char* json, const fsdp2_module_options* options) {
  const std::string name = read_text(kind, kMaxName, "kind");
  const std::string text = json == nullptr ? "" : read_text(json, kMaxText, "json");
  return give_custom(options, [&](const nn::LayerSettings& settings) {
    return nn::make_layer(name, text, settings);
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_module_create_layer(const char* kind, const char* json,
                                       const fsdp2_module_options* options, fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::create_layer(kind, json, options);
  });
}
