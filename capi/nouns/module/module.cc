#include "include/fsdp2/module.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/module_options.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/base/log.h"
#include "core/ckpt/hugging_face/hugging_face_directory.h"
#include "core/exported/exported_program.h"
#include "core/fsdp/held_bytes.h"
#include "core/models/config_overrides.h"
#include "core/models/configured_model.h"
#include "core/models/language_model.h"
#include "core/models/registry.h"
#include "core/nn/layers/tiled_mlp.h"
#include "core/nn/own_generator.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/seeded_init.h"
#include "core/train/module_path.h"

namespace fsdp2::capi {

namespace {

at::ScalarType parameter_dtype(const fsdp2_module_options& options) {
  return read_float_dtype_or_keep(options.dtype, "options.dtype").value_or(at::kFloat);
}

std::string config_of(const std::string& json, const fsdp2_module_options& options) {
  if (options.config_overrides == nullptr) {
    return json;
  }
  const std::string overrides =
      read_text(options.config_overrides, kMaxConfig, "options.config_overrides");
  return models::with_overrides(json, overrides);
}

uint64_t give_module(std::shared_ptr<nn::Module> module,
                     std::shared_ptr<nn::ParameterSource> source) {
  std::vector<ModuleParameter> parameters = parameters_of(*module);
  auto object =
      std::make_shared<ModuleObject>(std::move(module), std::move(source), std::move(parameters));
  return give(Kind::kModule, std::move(object));
}

// Every parameter is there with its shape: found out now, not when the first rank reads it.
void check_parameters(const nn::Module& module, nn::ParameterSource& source) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    std::vector<int64_t> no_rows = parameter.tensor.sizes().vec();
    if (!no_rows.empty()) {
      no_rows.front() = 0;
    }
    source.read(nn::name_in(source, parameter.names), parameter.tensor.sizes(), 0,
                at::empty(no_rows, parameter.tensor.scalar_type()));
  }
}

// Dropout draws from the seed.
void seed_own_generator(const nn::Module& module, uint64_t seed) {
  if (std::optional<at::Generator> own = nn::own_generator_of(module)) {
    own->set_current_seed(seed);
  }
}

uint64_t module_from_pretrained(const char* directory, const fsdp2_module_options* given) {
  const fsdp2_module_options options = read_options_without_program(given);
  const at::ScalarType dtype = parameter_dtype(options);
  auto source = std::make_shared<ckpt::HuggingFaceDirectory>(read_path(directory, "directory"));
  auto module = models::build(config_of(source->config_json(), options), dtype);
  check_parameters(*module, *source);
  seed_own_generator(*module, options.seed);
  return give_module(std::move(module), std::move(source));
}

uint64_t module_from_config(const char* json, const fsdp2_module_options* given) {
  const fsdp2_module_options options = read_options_without_program(given);
  const at::ScalarType dtype = parameter_dtype(options);
  auto module = models::build(config_of(read_text(json, kMaxConfig, "json"), options), dtype);
  const models::ConfiguredModel& configured = models::configured_model(*module, "json");
  auto source = std::make_shared<nn::SeededInit>(
      options.seed, configured.initializer_range(), configured.initial_norm_weight(),
      configured.residual_range(), configured.padding_token());
  seed_own_generator(*module, options.seed);
  return give_module(std::move(module), std::move(source));
}

uint64_t module_from_exported(const char* path, const fsdp2_module_options* given) {
  const fsdp2_module_options options = read_module_options(given);
  const auto dtype = read_float_dtype_or_keep(options.dtype, "options.dtype");
  FSDP2_CHECK(options.config_overrides == nullptr, Code::kInvalidArgument,
              "options.config_overrides: a program has no config.json: expected NULL");
  exported::ExportedModel model = exported::load_exported(
      read_path(path, "path"), {dtype, /*fuses=*/options.plain_operators == 0});
  if (model.draws_random_numbers) {
    at::manual_seed(options.seed);
  }
  return give_module(std::move(model.module), std::move(model.values));
}

fsdp2_module_info module_info(const ModuleObject& object) {
  fsdp2_module_info info{};
  const auto parameters = object.parameters();
  info.n_parameters = static_cast<int32_t>(parameters->size());
  for (const ModuleParameter& parameter : *parameters) {
    info.numel += c10::multiply_integers(parameter.shape);
  }
  if (const auto* language = models::find_language_model(*object.module)) {
    info.vocab_size = language->vocab_size();
    info.max_positions = language->max_positions();
  }
  info.n_bytes = static_cast<int64_t>(fsdp::held_bytes(*object.module));
  return info;
}

void checkpoint_activations(ModuleObject& object, const char* const* kinds, size_t n_kinds,
                            size_t every, uint32_t flags) {
  check_usable(object);
  constexpr uint32_t kKnown = FSDP2_ACTIVATIONS_NO_EARLY_STOP | FSDP2_ACTIVATIONS_BY_PATH;
  FSDP2_CHECK((flags & ~kKnown) == 0, Code::kInvalidArgument,
              "flags: expected FSDP2_ACTIVATIONS_NO_EARLY_STOP (1) and _BY_PATH (2) or 0, found {}",
              flags);
  const std::vector<std::string> given = read_texts(kinds, n_kinds, kMaxName, "kinds");
  const auto step = static_cast<int64_t>(check_count(every, 1, kMaxCount, "every"));
  const bool early_stop = (flags & FSDP2_ACTIVATIONS_NO_EARLY_STOP) == 0;
  if ((flags & FSDP2_ACTIVATIONS_BY_PATH) == 0) {
    nn::checkpoint_by_kind(*object.module, given.empty() ? object.module->no_split_kinds() : given,
                           step, early_stop);
    return;
  }
  FSDP2_CHECK(!given.empty(), Code::kInvalidArgument, "kinds: expected paths of modules");
  std::vector<std::shared_ptr<nn::Module>> modules;
  for (const std::string& path : given) {
    modules.push_back(train::find_module(object.module, path, "kinds"));
  }
  nn::checkpoint_modules(*object.module, modules, step, early_stop);
}

}  // namespace

std::vector<ModuleParameter> parameters_of(const nn::Module& module) {
  std::vector<ModuleParameter> parameters;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    parameters.push_back(
        {parameter.names, parameter.tensor.sizes().vec(), parameter.tensor.scalar_type()});
  }
  return parameters;
}

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_module_options_init(fsdp2_module_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kModuleDefaults, "options");
  });
}

fsdp2_status fsdp2_module_from_pretrained(const char* directory,
                                          const fsdp2_module_options* options, fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::module_from_pretrained(directory, options);
  });
}

fsdp2_status fsdp2_module_from_config(const char* json, const fsdp2_module_options* options,
                                      fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::module_from_config(json, options);
  });
}

fsdp2_status fsdp2_module_from_exported(const char* path, const fsdp2_module_options* options,
                                        fsdp2_module* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    out->id = capi::module_from_exported(path, options);
  });
}

fsdp2_status fsdp2_module_destroy(fsdp2_module module) {
  return capi::destroy(__func__, capi::Kind::kModule, module.id);
}

fsdp2_status fsdp2_module_duplicate(fsdp2_module module, fsdp2_module* out) {
  return capi::duplicate(__func__, capi::Kind::kModule, module, out);
}

fsdp2_status fsdp2_module_get_info(fsdp2_module module, fsdp2_module_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::check_out_struct(out, "out");
    capi::enter_to_read(call, *object);
    capi::fill_struct(out, capi::module_info(*object));
  });
}

fsdp2_status fsdp2_module_checkpoint_activations(fsdp2_module module, const char* const* kinds,
                                                 size_t n_kinds, size_t every, uint32_t flags) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::enter(call, *object);
    capi::checkpoint_activations(*object, kinds, n_kinds, every, flags);
  });
}

fsdp2_status fsdp2_module_tile_mlps(fsdp2_module module, size_t tiles, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::enter(call, *object);
    capi::check_usable(*object);
    const size_t count = capi::check_count(tiles, 1, capi::kMaxCount, "tiles");
    const int64_t mlps = fsdp2::nn::tile_mlps(*object->module, static_cast<int64_t>(count));
    if (out != nullptr) {
      *out = static_cast<size_t>(mlps);
    }
  });
}

fsdp2_status fsdp2_module_train(fsdp2_module module, int32_t mode) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::enter(call, *object);
    object->module->train(capi::read_flag(mode, "mode"));
  });
}

fsdp2_status fsdp2_module_is_training(fsdp2_module module, int32_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::check_not_null(out, "out");
    capi::enter_to_read(call, *object);
    *out = object->module->is_training() ? 1 : 0;
  });
}
