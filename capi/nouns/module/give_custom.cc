#include "capi/nouns/module/give_custom.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/dtype.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/module_options.h"
#include "capi/nouns/module/module_path.h"
#include "capi/object.h"
#include "core/base/error.h"
#include "core/fsdp/group/sharded_param.h"

namespace fsdp2::capi {

namespace {

// "parameter 'layers.0.weight' of unit 'layers.0'"
std::string title_of_parameter(const std::shared_ptr<ModuleObject>& object,
                               const at::Tensor& parameter) {
  const auto root = object == nullptr ? nullptr : fsdp::find_unit(*whole_of(object)->module);
  if (root != nullptr) {
    for (const auto& unit : root->units()) {
      for (const fsdp::ShardedParam* param : unit->group() == nullptr
                                                 ? std::vector<fsdp::ShardedParam*>()
                                                 : unit->group()->params()) {
        if (param->unsharded().is_alias_of(parameter)) {
          return fmt::format("parameter '{}' of {}", param->name(), unit_title(*unit));
        }
      }
    }
  }
  return "a parameter";
}

}  // namespace

uint64_t give_custom(
    const fsdp2_module_options* given,
    const std::function<std::shared_ptr<nn::CustomModule>(const nn::LayerSettings&)>& make) {
  const fsdp2_module_options options = read_options_without_program(given);
  const auto dtype = read_float_dtype_or_keep(options.dtype, "options.dtype").value_or(at::kFloat);
  FSDP2_CHECK(options.config_overrides == nullptr, Code::kInvalidArgument,
              "options.config_overrides: this module has no config.json: expected NULL");
  const auto made = std::make_shared<std::weak_ptr<ModuleObject>>();
  const auto module = make({dtype, options.seed, [made](const at::Tensor& parameter) {
                              return title_of_parameter(made->lock(), parameter);
                            }});
  auto object = std::make_shared<ModuleObject>(
      module, std::make_shared<nn::CustomInit>(module, options.seed), parameters_of(*module));
  object->dtype = dtype;
  *made = object;
  return give(Kind::kModule, std::move(object));
}

}  // namespace fsdp2::capi
