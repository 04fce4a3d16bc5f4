/* A step of the tiny model on all ranks, beside the same step on one. */
#ifndef TESTS_CAPI_SAME_STEP_H_
#define TESTS_CAPI_SAME_STEP_H_

#include "tests/capi/tiny_model.h"

/* What one rank computes of the tokens of so many. */
static struct tiny_result reference[5];

static inline fsdp2_status last_dim_of_matrices(const fsdp2_shard_dim_info* info, int32_t* out,
                                                void* user_data) {
  EXPECT(info->struct_size == sizeof(*info) && info->dtype == FSDP2_DTYPE_F32);
  EXPECT(info->n_dims >= 1 && info->shape[0] >= kTinyWidth && info->shape[info->n_dims] == 0);
  if (strcmp(info->parameter, "lm_head.weight") == 0) {
    EXPECT(info->n_dims == 2 && info->shape[0] == kTinyVocabulary && info->shape[1] == kTinyWidth);
  }
  *out = info->n_dims == 2 ? -1 : 0;
  ++*(int*)user_data;
  return FSDP2_OK;
}

static inline void expect_same_step(fsdp2_mesh mesh, const fsdp2_shard_options* options,
                                    const char* what) {
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_with(module, mesh, options);
  const fsdp2_mesh_info place = place_of(mesh);
  const struct tiny_result* expected = &reference[place.world_size];
  int i;
  tiny_turn = place.rank; /* or a wrong average would not show */
  for (i = 0; i < 2; ++i) {
    struct tiny_result result = tiny_step(module, shard);
    EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &result.loss, 1, FSDP2_REDUCE_AVERAGE));
    if (!EXPECT_NEAR(result.loss, expected->loss, 1e-6) ||
        !EXPECT_NEAR(result.norm, expected->norm, 1e-5)) {
      fprintf(stderr, "  with %s, step %d\n", what, i);
    }
  }
  destroy_tiny(module, shard);
}

#endif /* TESTS_CAPI_SAME_STEP_H_ */
