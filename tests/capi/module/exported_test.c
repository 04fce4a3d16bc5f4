/* Models that torch.export and torch.jit.save have written, from C: sharded, trained, saved and
 * loaded again. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>

#include "tests/capi/ranks.h"

#define PROGRAM "tests/parity/exported/llama.pt2"
#define SCRIPT "tests/parity/scripted/words.pt"

enum { kBatch = 4, kLength = 7 };
static const int64_t kShape[2] = {kBatch, kLength};

struct run {
  fsdp2_mesh mesh;
  fsdp2_module module;
  fsdp2_shard shard;
  fsdp2_optimizer optimizer;
  fsdp2_step step;
};

static struct run start(const char* program) {
  struct run run;
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  memset(&run, 0, sizeof(run));
  adamw.lr = 3e-3;
  run.mesh = lone_mesh();
  EXPECT_OK(fsdp2_module_from_exported(program, NULL, &run.module));
  EXPECT_OK(fsdp2_shard_create(run.module, run.mesh, &options, &run.shard));
  EXPECT_OK(fsdp2_optimizer_create_adamw(run.shard, &adamw, &run.optimizer));
  EXPECT_OK(fsdp2_step_create(run.shard, run.optimizer, NULL, &run.step));
  return run;
}

static void end(struct run* run) {
  EXPECT_OK(fsdp2_step_destroy(run->step));
  EXPECT_OK(fsdp2_optimizer_destroy(run->optimizer));
  EXPECT_OK(fsdp2_shard_destroy(run->shard));
  EXPECT_OK(fsdp2_module_destroy(run->module));
  EXPECT_OK(fsdp2_mesh_destroy(run->mesh));
}

/* Tokens that are the same wherever step i is taken, and that all the models have. */
static fsdp2_tensor batch_of(int i) {
  int64_t tokens[kBatch * kLength];
  int k;
  for (k = 0; k < kBatch * kLength; ++k) {
    tokens[k] = (5 * k + 7 * i) % 11;
  }
  return int64_tensor(tokens, kShape, 2);
}

static double take(struct run* run, int i) {
  fsdp2_step_result result;
  fsdp2_tensor batch[2];
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  batch[0] = batch_of(i);
  batch[1] = batch_of(i);
  EXPECT_OK(fsdp2_step_run(run->step, batch, 2, &result));
  EXPECT(result.applied == 1 && result.finite == 1);
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return result.loss;
}

static void parameters_have_their_names_in_python(void) {
  fsdp2_module module = {0};
  fsdp2_module_info info;
  size_t index = 0, other = 1;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_module_from_exported(PROGRAM, NULL, &module));
  EXPECT_OK(fsdp2_module_get_info(module, &info));
  EXPECT(info.n_parameters == 11 && info.vocab_size == 0);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, "model.embed_tokens.weight", &index));
  EXPECT_OK(fsdp2_module_get_parameter_index(module, "lm_head.weight", &other));
  EXPECT(index == other);
  EXPECT_OK(fsdp2_module_get_parameter_index(module, "model.layers.0.mlp.up_proj.weight", &other));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void goes_on_from_a_checkpoint(const char* program, const char* directory) {
  struct run run = start(program);
  const double first = take(&run, 0);
  double expected;
  EXPECT_OK(fsdp2_checkpoint_save(run.shard, run.optimizer, run.step, (fsdp2_loader){0}, directory,
                                  NULL));
  expected = take(&run, 1);
  EXPECT(first > 2.0 && first < 6.0 && expected != first);
  end(&run);
  run = start(program);
  EXPECT_OK(fsdp2_checkpoint_load(run.shard, run.optimizer, run.step, (fsdp2_loader){0}, directory,
                                  NULL));
  EXPECT(take(&run, 1) == expected);
  end(&run);
}

static void training_goes_on_from_a_checkpoint(void) {
  goes_on_from_a_checkpoint(PROGRAM, temporary_path("exported"));
  goes_on_from_a_checkpoint(SCRIPT, temporary_path("scripted"));
}

/* The mode in which it was saved; parameters by their names, layers by default. */
static void a_script_is_a_module_like_others(void) {
  struct run run = start(SCRIPT);
  const double expected = take(&run, 0);
  int32_t training = 0;
  size_t index = 0, other = 1;
  EXPECT_OK(fsdp2_module_is_training(run.module, &training));
  EXPECT(training == 1);
  EXPECT_OK(fsdp2_module_get_parameter_index(run.module, "words.weight", &index));
  EXPECT_OK(fsdp2_module_get_parameter_index(run.module, "head.weight", &other));
  EXPECT(index == other);
  end(&run);
  run = start(SCRIPT);
  EXPECT_OK(fsdp2_module_checkpoint_activations(run.module, NULL, 0, 1, 0));
  EXPECT(take(&run, 0) == expected);
  end(&run);
}

static void inputs_that_were_not_exported_are_refused(void) {
  struct run run = start(PROGRAM);
  static const int64_t shape[2] = {1, 28};
  fsdp2_step_result result;
  fsdp2_tensor batch[2];
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  batch[0] = batch_of(0);
  batch[1] = batch_of(0);
  EXPECT_STATUS(fsdp2_step_run(run.step, batch, 1, &result), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  {
    int64_t tokens[28] = {0};
    batch[1] = int64_tensor(tokens, shape, 2);
  }
  EXPECT_STATUS(fsdp2_step_run(run.step, batch, 2, &result), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("llama.pt2: input labels: size of dim 0: expected 4");
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  take(&run, 0); /* the refused calls count as not made */
  end(&run);
}

static void inputs_are_checked_before_there_are_values(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_module module = {0};
  fsdp2_shard shard = {0};
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_tensor batch[2];
  batch[0] = batch_of(0);
  batch[1] = batch_of(1);
  EXPECT_OK(fsdp2_module_from_exported(PROGRAM, NULL, &module));
  EXPECT_OK(fsdp2_module_check_inputs(module, batch, 2));
  EXPECT_STATUS(fsdp2_module_check_inputs(module, batch, 1), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("inputs: expected 2 to 2 inputs");
  options.defer_values = 1;
  options.param_dtype = FSDP2_DTYPE_BF16;
  EXPECT_OK(fsdp2_shard_create(module, mesh, &options, &shard));
  EXPECT_STATUS(fsdp2_module_check_inputs(module, batch, 2), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("in Float, found BFloat16");
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void layers_are_checkpointed_by_default(void) {
  struct run run = start(PROGRAM);
  const double expected = take(&run, 0);
  const char* kind = "LlamaModule";
  end(&run);
  run = start(PROGRAM);
  EXPECT_STATUS(fsdp2_module_checkpoint_activations(run.module, &kind, 1, 1, 0), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("LlamaDecoderLayer");
  EXPECT_OK(fsdp2_module_checkpoint_activations(run.module, NULL, 0, 1, 0));
  EXPECT(take(&run, 0) == expected);
  end(&run);
}

static void the_seed_decides_on_dropout(void) {
  const uint64_t seeds[3] = {1, 1, 2};
  double losses[3] = {0};
  int i;
  for (i = 0; i < 3; ++i) {
    fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
    fsdp2_module module = {0};
    fsdp2_tensor inputs[2], loss = {0};
    size_t n = 0;
    options.seed = seeds[i];
    inputs[0] = batch_of(0);
    inputs[1] = batch_of(0);
    EXPECT_OK(fsdp2_module_from_exported("tests/parity/exported/bert.pt2", &options, &module));
    EXPECT_OK(fsdp2_module_forward(module, inputs, 2, 0, &loss, 1, &n));
    EXPECT_OK(fsdp2_tensor_get_value(loss, &losses[i]));
    EXPECT_OK(fsdp2_tensor_destroy(loss));
    EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
    EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
    EXPECT_OK(fsdp2_module_destroy(module));
  }
  EXPECT(losses[0] == losses[1] && losses[0] != losses[2]);
}

/* By rounding alone; what another kind of module has none of is refused. */
static void plain_operators_are_those_of_the_file(void) {
  double losses[2] = {0};
  int32_t i;
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  for (i = 0; i < 2; ++i) {
    fsdp2_tensor inputs[2], loss = {0};
    size_t n = 0;
    options.plain_operators = i;
    inputs[0] = batch_of(0);
    inputs[1] = batch_of(0);
    EXPECT_OK(fsdp2_module_from_exported(PROGRAM, &options, &module));
    EXPECT_OK(fsdp2_module_forward(module, inputs, 2, 0, &loss, 1, &n));
    EXPECT_OK(fsdp2_tensor_get_value(loss, &losses[i]));
    EXPECT_OK(fsdp2_tensor_destroy(loss));
    EXPECT_OK(fsdp2_tensor_destroy(inputs[0]));
    EXPECT_OK(fsdp2_tensor_destroy(inputs[1]));
    EXPECT_OK(fsdp2_module_destroy(module));
  }
  EXPECT(fabs(losses[0] - losses[1]) < 1e-5);
  EXPECT_OK(fsdp2_module_from_exported(SCRIPT, &options, &module));
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_STATUS(fsdp2_module_create_layer("ReLU", NULL, &options, &module),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options.plain_operators: this module is not an exported program");
}

static void shard_with_other_operators_than_the_peer(fsdp2_mesh mesh, int rank) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  fsdp2_shard shard = {0};
  options.plain_operators = rank;
  EXPECT_OK(fsdp2_module_from_exported(PROGRAM, &options, &module));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("the ranks differ in operators: rank 0 has fused, rank 1 has plain");
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void ranks_of_other_operators_are_refused(void) {
  on_ranks("operators", 2, 0, shard_with_other_operators_than_the_peer);
}

static void files_that_are_none_are_named(void) {
  fsdp2_module module = {0};
  EXPECT_STATUS(fsdp2_module_from_exported("/no/such.pt2", NULL, &module), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("/no/such.pt2");
  EXPECT_STATUS(fsdp2_module_from_exported(TINY_LLAMA "/config.json", NULL, &module),
                FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("config.json");
}

int main(void) {
  RUN(parameters_have_their_names_in_python);
  RUN(training_goes_on_from_a_checkpoint);
  RUN(a_script_is_a_module_like_others);
  RUN(inputs_that_were_not_exported_are_refused);
  RUN(inputs_are_checked_before_there_are_values);
  RUN(layers_are_checkpointed_by_default);
  RUN(the_seed_decides_on_dropout);
  RUN(plain_operators_are_those_of_the_file);
  RUN(ranks_of_other_operators_are_refused);
  RUN(files_that_are_none_are_named);
  return harness_result();
}
