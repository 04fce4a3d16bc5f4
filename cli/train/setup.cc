#include "cli/train/setup.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <vector>

#include "cli/arguments.h"
#include "cli/config_file.h"
#include "cli/create_optimizer.h"
#include "cli/exported_file.h"
#include "cli/module_names.h"
#include "cli/terminal.h"
#include "cli/train/flags/data_files.h"
#include "cli/train/flags/group_rules.h"
#include "core/config/model_presets.h"

namespace fsdp2::cli {

namespace {

using Numbers = std::map<std::string, int32_t>;

const Numbers kEngines = {{"auto", FSDP2_PRODUCT_ENGINE_AUTO},
                          {"mkl", FSDP2_PRODUCT_ENGINE_MKL},
                          {"onednn", FSDP2_PRODUCT_ENGINE_ONEDNN}};
const Numbers kMatmulPrecisions = {{"highest", FSDP2_MATMUL_HIGHEST},
                                   {"high", FSDP2_MATMUL_HIGH},
                                   {"medium", FSDP2_MATMUL_MEDIUM},
                                   {"high-always", FSDP2_MATMUL_HIGH_ALWAYS},
                                   {"medium-always", FSDP2_MATMUL_MEDIUM_ALWAYS}};
const Numbers kSchedules = {{"constant", FSDP2_SCHEDULE_CONSTANT},
                            {"linear", FSDP2_SCHEDULE_LINEAR},
                            {"cosine", FSDP2_SCHEDULE_COSINE}};
const Numbers kLossMeans = {{"micro-batches", FSDP2_LOSS_MEAN_MICRO_BATCHES},
                            {"labels", FSDP2_LOSS_MEAN_LABELS}};
const Numbers kBackends = {
    {"auto", FSDP2_BACKEND_AUTO}, {"gloo", FSDP2_BACKEND_GLOO}, {"nccl", FSDP2_BACKEND_NCCL}};
const Numbers kNotFinite = {{"error", FSDP2_NOT_FINITE_ERROR},
                            {"skip", FSDP2_NOT_FINITE_SKIP},
                            {"apply", FSDP2_NOT_FINITE_APPLY}};

std::string first_variable(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr) {
      return value;
    }
  }
  return "";
}

// What the strategy means for the mesh and for the shard.
void apply_strategy(const TrainOptions& options, fsdp2_mesh_options* mesh,
                    fsdp2_shard_options* shard) {
  check(fsdp2_shard_apply_strategy(options.strategy.c_str(), options.fsdp_size, mesh, shard));
}

// The vocabulary that the tokens of the data lie in. Bytes need none from a model that tells none.
int64_t vocabulary_of(const TrainOptions& options, int64_t models_own) {
  constexpr int64_t kBytes = 256;
  return options.vocab_size > 0 ? options.vocab_size : models_own > 0 ? models_own : kBytes;
}

int32_t data_format(const TrainOptions& options) {
  return !options.tokens.empty() ? FSDP2_TOKENS_AUTO
         : !options.text.empty() ? FSDP2_TOKENS_BYTES
                                 : FSDP2_TOKENS_RECORDS;
}

void freeze(const TrainOptions& options, const Module& module) {
  if (options.freeze.empty()) {
    return;
  }
  const auto frozen = ModuleNames(module).parameters_in("--freeze", parts_of(options.freeze));
  const std::vector<const char*> texts = texts_of(frozen);
  check(fsdp2_module_set_requires_grad(module.get(), texts.data(), texts.size(), 0));
}

void check_ties(const TrainOptions& options, const Module& module) {
  require(!options.untie_embeddings_and_output_weights || !ModuleNames(module).has_ties(),
          "--untie-embeddings-and-output-weights: --model " + options.model +
              " shares weights between embeddings and head");
}

void checkpoint_activations(const TrainOptions& options, const Module& module,
                            const std::vector<std::string>& kinds, uint32_t flags) {
  const std::vector<const char*> texts = texts_of(kinds);
  check(fsdp2_module_checkpoint_activations(module.get(), texts.data(), texts.size(),
                                            static_cast<size_t>(options.recompute_every), flags));
}

void recompute(const TrainOptions& options, const Module& module) {
  if (!options.activation_checkpointing) {
    return;
  }
  const bool is_default = options.recompute == TrainOptions().recompute;
  if (!is_default || options.recompute_names.empty()) {
    const auto kinds = is_default ? std::vector<std::string>() : parts_of(options.recompute);
    checkpoint_activations(options, module, kinds, 0);
  }
  if (!options.recompute_names.empty()) {
    const auto paths =
        ModuleNames(module).modules_in("--recompute-names", parts_of(options.recompute_names));
    checkpoint_activations(options, module, paths, FSDP2_ACTIVATIONS_BY_PATH);
  }
}

void tile_mlps(const TrainOptions& options, const Module& module) {
  if (options.mlp_tiles > 0) {
    check(fsdp2_module_tile_mlps(module.get(), static_cast<size_t>(options.mlp_tiles), nullptr));
  }
}

bool wraps_embeddings(const TrainOptions& options, const ModuleNames& names) {
  const bool untied = options.wrap_embeddings == "untied";
  return untied ? !names.has_ties() : options.wrap_embeddings == "yes";
}

void exempt_from_decay(const std::string& names, uint32_t flags, const Optimizer& optimizer) {
  if (!names.empty()) {
    const std::vector<std::string> parts = parts_of(names);
    const std::vector<const char*> texts = texts_of(parts);
    check(fsdp2_optimizer_exempt_named_from_decay(optimizer.get(), texts.data(), texts.size(),
                                                  flags));
  }
}

// Their own names.
std::vector<std::string> names_of_trained(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_parameter_count(shard.get(), &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    const auto info = info_of<fsdp2_parameter_info>(fsdp2_shard_get_parameter_info, shard.get(), i);
    if (info.requires_grad != 0) {
      names.push_back(text_of(fsdp2_shard_get_parameter_name, shard.get(), i, size_t{0}));
    }
  }
  return names;
}

void apply_lr_plan(const TrainOptions& options, const Shard& shard, const Optimizer& optimizer) {
  if (options.lr_plan.empty()) {
    return;
  }
  for (const LrPlan::Rule& rule : LrPlan(options.lr_plan).rules_for(names_of_trained(shard))) {
    if (rule.factor != 1.0) {  // such a rule keeps names from later ones, or is about all the rest
      const std::vector<const char*> texts = texts_of(rule.names);
      check(
          fsdp2_optimizer_scale_named_lr(optimizer.get(), texts.data(), texts.size(), rule.factor));
    }
  }
}

// In whole steps, as MindSpeed-MM counts them, but at least one; 0 is all of them.
int64_t decay_steps(const TrainOptions& options) {
  const double steps = static_cast<double>(options.steps) * options.lr_decay_ratio;
  return options.lr_decay_ratio == 1.0 ? 0 : std::max<int64_t>(1, static_cast<int64_t>(steps));
}

// The config.json of the model, or the directory with it; "" where no file has it.
std::string config_path(const TrainOptions& options) {
  if (!options.model_config.empty()) {
    return config::is_model_preset(options.model_config) ? "" : options.model_config;
  }
  return is_exported_file(options.model) ? "" : options.model;
}

void build_model(const TrainOptions& options, const char* config_flag, Module* out) {
  fsdp2_module_options module = FSDP2_MODULE_OPTIONS_INIT;
  module.dtype = dtype_number(options.dtype);
  module.seed = options.seed;
  const std::string& overrides = options.config_overrides;
  module.config_overrides = overrides.empty() ? nullptr : overrides.c_str();
  if (!options.model_config.empty()) {
    const bool unties = options.untie_embeddings_and_output_weights;
    module_from_config_file(config_flag, options.model_config, module, out,
                            unties ? Ties::kNone : Ties::kAsGiven);
  } else if (is_exported_file(options.model)) {
    check(fsdp2_module_from_exported(options.model.c_str(), &module, out->out()));
  } else {
    check(fsdp2_module_from_pretrained(options.model.c_str(), &module, out->out()));
  }
}

}  // namespace

std::string rank_in_environment() {
  return first_variable({"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"});
}

std::string rank_to_show() {
  return std::getenv(kRankIsShown) != nullptr ? "" : rank_in_environment();
}

void set_up_process(const TrainOptions& options) {
  check(fsdp2_check_version(FSDP2_HEADER_VERSION));
  if (options.threads > 0) {
    check(fsdp2_runtime_set_threads(static_cast<size_t>(options.threads)));
  }
  const bool is_free = options.product_engine == "auto";
  check(fsdp2_runtime_set_product_engine(
      kEngines.at(is_free && options.deterministic ? "mkl" : options.product_engine)));
  if (options.deterministic) {
    constexpr int kKeep = 0;  // what the user has chosen
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", kKeep);
    check(fsdp2_runtime_set_deterministic(1));
  }
  check(fsdp2_runtime_set_matmul_precision(kMatmulPrecisions.at(options.matmul_precision)));
  check(fsdp2_runtime_keep_memory(options.keeps_memory() ? 1 : 0));
}

void join_job(const config::Plan& plan, Mesh* out) {
  const TrainOptions& options = plan.options;
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  mesh.backend = kBackends.at(options.backend);
  mesh.timeout_ms = std::max<int64_t>(1, std::llround(options.timeout_s * 1000));
  check(fsdp2_mesh_create(&mesh, out->out()));
  check(fsdp2_mesh_agree(out->get(), "options", plan.shared_text().c_str()));
}

void lay_out_mesh(const TrainOptions& options, const Mesh& job, Mesh* out) {
  fsdp2_mesh_options mesh = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
  apply_strategy(options, &mesh, &shard);
  mesh.device_type = options.device.c_str();
  mesh.ulysses_size = options.ulysses_size;
  check(fsdp2_mesh_create_in(job.get(), &mesh, out->out()));
}

void make_model(const TrainOptions& options, Module* out, const std::string& overrides_origin,
                const char* config_flag) {
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
  check_ties(options, *out);
  freeze(options, *out);
  tile_mlps(options, *out);
  recompute(options, *out);
}

void shard_model(const TrainOptions& options, const Module& module, const Mesh& mesh, Shard* out) {
  const ModuleNames names(module);
  fsdp2_mesh_options joined = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_shard_options shard = FSDP2_SHARD_OPTIONS_INIT;
  apply_strategy(options, &joined, &shard);
  shard.reshard_after_forward = reshard_number(options.sharding(), shard.reshard_after_forward);
  shard.cpu_offload = shard.no_pin_memory = options.cpu_offload ? 1 : 0;
  shard.param_dtype = dtype_number(options.param_dtype);
  shard.reduce_dtype = dtype_number(options.reduce_dtype);
  shard.output_dtype = dtype_number(options.output_dtype);
  shard.no_cast_forward_inputs = options.cast_forward_inputs == "false" ? 1 : 0;
  shard.comm_path = comm_path_number(options.comm_path);
  shard.prefetch = options.prefetch == 0 ? -1 : static_cast<int32_t>(options.prefetch);
  shard.load_from_rank0 = options.load_from_rank0 ? 1 : 0;
  shard.wrap_head = options.wrap_head ? 1 : 0;
  shard.wrap_embeddings = wraps_embeddings(options, names) ? 1 : 0;
  shard.defer_values = 1;
  const Wrap wrap(names.expand(options.sharding()));
  wrap.set(&shard);
  ShardDim dim(options.sharding(),
               info_of<fsdp2_mesh_info>(fsdp2_mesh_get_info, mesh.get()).world_size);
  dim.set(&shard);
  const auto ignored = names.parameters_in("--ignored-modules", parts_of(options.ignored_modules));
  const std::vector<const char*> ignored_texts = texts_of(ignored);
  shard.ignored_names = ignored_texts.data();
  shard.n_ignored_names = ignored_texts.size();
  check(fsdp2_shard_create(module.get(), mesh.get(), &shard, out->out()));
}

std::vector<std::string> unit_names(const Shard& shard) {
  size_t count = 0;
  check(fsdp2_shard_get_unit_count(shard.get(), &count));
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(text_of(fsdp2_shard_get_unit_name, shard.get(), i));
  }
  return names;
}

void check_batch(const TrainOptions& options, int64_t data_ranks, const Module& module) {
  const std::array<int64_t, 2> shape = {options.global_batch / (data_ranks * options.grad_accum),
                                        options.seq_len};
  const std::vector<int64_t> zeros(static_cast<size_t>(shape[0] * shape[1]));
  std::array<Tensor, 2> tensors;
  std::vector<fsdp2_tensor> batch;
  for (Tensor& tensor : tensors) {
    check(fsdp2_tensor_from_buffer(zeros.data(), zeros.size() * sizeof(int64_t), FSDP2_DTYPE_I64,
                                   shape.data(), shape.size(), tensor.out()));
    batch.push_back(tensor.get());
  }
  const fsdp2_status status = fsdp2_module_check_inputs(module.get(), batch.data(), batch.size());
  if (status == FSDP2_E_INVALID_ARGUMENT) {
    throw UsageError(
        "--global-batch, --grad-accum and --seq-len give a rank tokens and labels of [" +
        std::to_string(shape[0]) + ", " + std::to_string(shape[1]) +
        "] at a time: " + fsdp2_error_message());
  }
  check(status);
}

void make_optimizer(const TrainOptions& options, const Shard& shard, Optimizer* out) {
  create_optimizer(options, shard, out);
  check(fsdp2_optimizer_exempt_from_decay(out->get(), read_no_decay(options.no_decay)));
  exempt_from_decay(options.no_decay_names, 0, *out);
  exempt_from_decay(options.no_decay_classes, FSDP2_NO_DECAY_BY_CLASS, *out);
  apply_lr_plan(options, shard, *out);
  for (const LrScale& scale : read_lr_scales(options.lr_scale)) {
    check(fsdp2_optimizer_scale_lr(out->get(), scale.pattern.c_str(), scale.factor));
  }
}

void open_data(const TrainOptions& options, const Mesh& mesh, int64_t vocab_size, Loader* out) {
  fsdp2_loader_options loader = FSDP2_LOADER_OPTIONS_INIT;
  loader.format = data_format(options);
  loader.order = options.shuffle ? FSDP2_ORDER_SHUFFLED : FSDP2_ORDER_SEQUENTIAL;
  loader.accumulate = static_cast<int32_t>(options.grad_accum);
  loader.sequence_length = options.seq_len;
  loader.global_batch = options.global_batch;
  loader.vocab_size = vocabulary_of(options, vocab_size);
  loader.seed = options.seed;
  loader.cut_long_records = options.cut_long_records ? 1 : 0;
  loader.skip_bad_records = options.skip_bad_records ? 1 : 0;
  loader.drop_last = options.drop_last ? 1 : 0;
  loader.read_ahead = static_cast<int32_t>(options.read_ahead);
  const std::string tokenizer = tokenizer_path(options);
  const bool has_tokens = loader.format == FSDP2_TOKENS_AUTO;
  loader.tokenizer = has_tokens || tokenizer.empty() ? nullptr : tokenizer.c_str();
  const std::string vision = loader.format == FSDP2_TOKENS_RECORDS ? config_path(options) : "";
  loader.vision_model = vision.empty() ? nullptr : vision.c_str();
  const std::vector<std::string> files = data_files(options);
  if (options.data_weights.empty()) {
    check(fsdp2_loader_open(mesh.get(), files.front().c_str(), &loader, out->out()));
    return;
  }
  std::vector<double> weights;
  for (const std::string& weight : parts_of(options.data_weights)) {
    weights.push_back(read_data_weight(weight));
  }
  check(fsdp2_loader_open_mixture(mesh.get(), texts_of(files).data(), weights.data(), files.size(),
                                  &loader, out->out()));
}

void make_step(const TrainOptions& options, const Shard& shard, const Optimizer& optimizer,
               Step* out) {
  fsdp2_step_options step = FSDP2_STEP_OPTIONS_INIT;
  step.accumulate = static_cast<int32_t>(options.grad_accum);
  step.accumulate_last = options.accum_sync == "last" ? 1 : 0;
  step.schedule = kSchedules.at(options.lr_schedule);
  step.warmup_steps = options.warmup;
  step.total_steps = options.steps;
  step.min_lr_ratio = options.min_lr_ratio;
  step.start_lr_ratio = options.start_lr_ratio;
  step.decay_steps = decay_steps(options);
  step.max_grad_norm = options.clip;
  step.loss_scale = options.loss_scale;
  step.loss_scale_interval = options.loss_scale_interval;
  step.loss_mean = kLossMeans.at(options.loss_mean);
  step.loss_chunk = static_cast<int32_t>(options.chunked_loss);
  step.not_finite = kNotFinite.at(options.not_finite);
  step.max_skips_in_row = static_cast<int32_t>(options.max_skips_in_row);
  check(fsdp2_step_create(shard.get(), optimizer.get(), &step, out->out()));
}

}  // namespace fsdp2::cli
