/* A model of three layers that is small enough to be made a thousand times, and what tests of
 * shards do with it. */
#ifndef TESTS_CAPI_TINY_MODEL_H_
#define TESTS_CAPI_TINY_MODEL_H_

#include "tests/capi/ranks.h"

#define TINY_CONFIG(tied)                                                                 \
  "{\"model_type\": \"llama\", \"vocab_size\": 32, \"hidden_size\": 16, \"head_dim\": 8," \
  " \"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"intermediate_size\": 24,"   \
  " \"num_hidden_layers\": 3, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"   \
  " \"rope_theta\": 10000.0, \"initializer_range\": 0.2, \"tie_word_embeddings\": " tied  \
  ","                                                                                     \
  " \"hidden_act\": \"silu\", \"attention_bias\": false, \"mlp_bias\": false}"

enum { kTinyParameters = 30, kTinyWidth = 16, kTinyVocabulary = 32 };

static inline fsdp2_module tiny_model_of(const char* config) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  options.seed = 7;
  EXPECT_OK(fsdp2_module_from_config(config, &options, &module));
  return module;
}

static inline fsdp2_module tiny_model(void) { return tiny_model_of(TINY_CONFIG("false")); }

/* Which tokens this thread's losses are of: the same for everyone until it is set. */
static _Thread_local int tiny_turn;

static inline fsdp2_tensor tiny_loss(fsdp2_module module, uint32_t flags) {
  static const int64_t shape[2] = {2, 4};
  int64_t values[2][8];
  fsdp2_tensor batch[2], loss = {0};
  size_t n = 0;
  int i;
  for (i = 0; i < 8; ++i) {
    values[0][i] = (1 + i + 5 * tiny_turn) % kTinyVocabulary;
    values[1][i] = (2 + i + 7 * tiny_turn) % kTinyVocabulary;
  }
  batch[0] = int64_tensor(values[0], shape, 2);
  batch[1] = int64_tensor(values[1], shape, 2);
  EXPECT_OK(fsdp2_module_forward(module, batch, 2, flags, &loss, 1, &n));
  EXPECT_OK(fsdp2_tensor_destroy(batch[0]));
  EXPECT_OK(fsdp2_tensor_destroy(batch[1]));
  return loss;
}

struct tiny_result {
  double loss, norm;
};

/* Forward and backward; the gradients stay. */
static inline double tiny_backward(fsdp2_module module) {
  const fsdp2_tensor loss = tiny_loss(module, 0);
  double value = 0.0;
  EXPECT_OK(fsdp2_tensor_get_value(loss, &value));
  EXPECT_OK(fsdp2_tensor_backward(loss));
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  return value;
}

static inline struct tiny_result tiny_step(fsdp2_module module, fsdp2_shard shard) {
  struct tiny_result result = {0.0, 0.0};
  EXPECT_OK(fsdp2_shard_zero_grad(shard));
  result.loss = tiny_backward(module);
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &result.norm));
  return result;
}

static inline fsdp2_shard shard_with(fsdp2_module module, fsdp2_mesh mesh,
                                     const fsdp2_shard_options* options) {
  fsdp2_shard shard = {0};
  EXPECT_OK(fsdp2_shard_create(module, mesh, options, &shard));
  return shard;
}

static inline void destroy_tiny(fsdp2_module module, fsdp2_shard shard) {
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* What one rank computes: the mean of so many turns' losses and gradients. */
static inline struct tiny_result tiny_on_one_rank_for(int turns) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, NULL);
  struct tiny_result result = {0.0, 0.0};
  for (tiny_turn = 0; tiny_turn < turns; ++tiny_turn) {
    result.loss += tiny_backward(module) / turns;
  }
  tiny_turn = 0;
  EXPECT_OK(fsdp2_shard_get_grad_norm(shard, 2.0, &result.norm));
  result.norm /= turns;
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  return result;
}

static inline struct tiny_result tiny_on_one_rank(void) { return tiny_on_one_rank_for(1); }

static inline fsdp2_mesh_info place_of(fsdp2_mesh mesh) {
  fsdp2_mesh_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  return info;
}

/* The names of the units, "|" in front of each but the root's, which is empty. */
static inline void expect_units(fsdp2_shard shard, const char* expected) {
  char found[1024] = "", name[256];
  size_t count = 0, needed = 0, i;
  EXPECT_OK(fsdp2_shard_get_unit_count(shard, &count));
  for (i = 0; i < count; ++i) {
    EXPECT_OK(fsdp2_shard_get_unit_name(shard, i, name, sizeof(name), &needed));
    strcat(found, i == 0 ? "" : "|");
    strcat(found, name);
  }
  if (!EXPECT(strcmp(found, expected) == 0)) {
    fprintf(stderr, "  expected units %s\n  found %s\n", expected, found);
  }
}

static inline fsdp2_unit_info unit_of(fsdp2_shard shard, const char* name) {
  fsdp2_unit_info info;
  size_t index = 0;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_unit_index(shard, name, &index));
  EXPECT_OK(fsdp2_shard_get_unit_info(shard, index, &info));
  return info;
}

static inline fsdp2_parameter_info parameter_of(fsdp2_shard shard, const char* name) {
  fsdp2_parameter_info info;
  size_t index = 0;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_shard_get_parameter_index(shard, name, &index));
  EXPECT_OK(fsdp2_shard_get_parameter_info(shard, index, &info));
  return info;
}

static inline fsdp2_shard_stats stats_of(fsdp2_shard shard) {
  fsdp2_shard_stats stats;
  memset(&stats, 0, sizeof(stats));
  stats.struct_size = (uint32_t)sizeof(stats);
  EXPECT_OK(fsdp2_shard_get_stats(shard, &stats));
  return stats;
}

#endif /* TESTS_CAPI_TINY_MODEL_H_ */
