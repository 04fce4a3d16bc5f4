#include "client/objects.h"

#include <string>
#include <vector>

#include "client/config_file.h"
#include "client/module_names.h"
#include "client/numbers.h"
#include "core/config/checks/exported_file.h"
#include "core/config/checks/require.h"

namespace fsdp2::client {

namespace {

void freeze(const config::TrainOptions& options, fsdp2_module module) {
  if (options.freeze.empty()) {
    return;
  }
  const auto frozen =
      ModuleNames(module).parameters_in("--freeze", config::parts_of(options.freeze));
  const std::vector<const char*> texts = texts_of(frozen);
  check(fsdp2_module_set_requires_grad(module, texts.data(), texts.size(), 0));
}

void check_ties(const config::TrainOptions& options, fsdp2_module module) {
  config::require(!options.untie_embeddings_and_output_weights || !ModuleNames(module).has_ties(),
                  "--untie-embeddings-and-output-weights: --model " + options.model +
                      " shares weights between embeddings and head");
}

void checkpoint_activations(const config::TrainOptions& options, fsdp2_module module,
                            const std::vector<std::string>& kinds, uint32_t flags) {
  const std::vector<const char*> texts = texts_of(kinds);
  check(fsdp2_module_checkpoint_activations(module, texts.data(), texts.size(),
                                            static_cast<size_t>(options.recompute_every), flags));
}

void recompute(const config::TrainOptions& options, fsdp2_module module) {
  if (!options.activation_checkpointing) {
    return;
  }
  const bool is_default = options.recompute == config::TrainOptions().recompute;
  if (!is_default || options.recompute_names.empty()) {
    const auto kinds =
        is_default ? std::vector<std::string>() : config::parts_of(options.recompute);
    checkpoint_activations(options, module, kinds, 0);
  }
  if (!options.recompute_names.empty()) {
    const auto paths = ModuleNames(module).modules_in("--recompute-names",
                                                      config::parts_of(options.recompute_names));
    checkpoint_activations(options, module, paths, FSDP2_ACTIVATIONS_BY_PATH);
  }
}

void tile_mlps(const config::TrainOptions& options, fsdp2_module module) {
  if (options.mlp_tiles > 0) {
    check(fsdp2_module_tile_mlps(module, static_cast<size_t>(options.mlp_tiles), nullptr));
  }
}

void build_model(const config::TrainOptions& options, const char* config_flag, Module* out) {
  fsdp2_module_options module = FSDP2_MODULE_OPTIONS_INIT;
  module.dtype = dtype_number(options.dtype);
  module.seed = options.seed;
  module.plain_operators = options.plain_operators ? 1 : 0;
  const std::string& overrides = options.config_overrides;
  module.config_overrides = overrides.empty() ? nullptr : overrides.c_str();
  if (!options.model_config.empty()) {
    const bool unties = options.untie_embeddings_and_output_weights;
    module_from_config_file(config_flag, options.model_config, module, out,
                            unties ? Ties::kNone : Ties::kAsGiven);
  } else if (config::is_exported_file(options.model)) {
    check(fsdp2_module_from_exported(options.model.c_str(), &module, out->out()));
  } else {
    check(fsdp2_module_from_pretrained(options.model.c_str(), &module, out->out()));
  }
}

}  // namespace

void make_model(const config::TrainOptions& options, Module* out,
                const std::string& overrides_origin, const char* config_flag) {
  try {
    build_model(options, config_flag, out);
  } catch (const Failure& failure) {
    if (options.config_overrides.empty()) {
      throw;
    }
    throw Failure("--config-overrides" +
                      (overrides_origin.empty() ? "" : " (" + overrides_origin + ")") + ": " +
                      failure.what(),
                  failure.status());
  }
  check_ties(options, out->get());
  freeze(options, out->get());
  tile_mlps(options, out->get());
  recompute(options, out->get());
}

}  // namespace fsdp2::client
