/* Meshes of several ranks, as threads of this process, through the C ABI. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/ranks.h"

static void reduce(fsdp2_mesh mesh, int rank) {
  double values[3] = {1.0 + rank, 10.0 * rank, -1.0};
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, values, 3, FSDP2_REDUCE_SUM));
  EXPECT(values[0] == 3.0 && values[1] == 10.0 && values[2] == -2.0);
  values[0] = rank;
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, values, 1, FSDP2_REDUCE_AVERAGE));
  EXPECT(values[0] == 0.5);
  values[0] = rank;
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, values, 1, FSDP2_REDUCE_MAX));
  EXPECT(values[0] == 1.0);
}
static void numbers_are_reduced_over_all_ranks(void) { on_ranks("reduce", 2, 0, reduce); }

static void reduce_unlike(fsdp2_mesh mesh, int rank) {
  double values[2] = {1.0, 2.0};
  EXPECT_STATUS(fsdp2_mesh_all_reduce(mesh, values, (size_t)(1 + rank), FSDP2_REDUCE_SUM),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("n: rank 0 has 1, rank 1 has 2");
  EXPECT(values[0] == 1.0 && values[1] == 2.0);
  EXPECT_STATUS(fsdp2_mesh_all_reduce(mesh, rank == 0 ? values : NULL, 2, FSDP2_REDUCE_SUM),
                rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
}
static void a_reduction_of_different_sizes_fails_on_all_ranks(void) {
  on_ranks("reduce-unlike", 2, 0, reduce_unlike);
}

static void agree(fsdp2_mesh mesh, int rank) {
  EXPECT_OK(fsdp2_mesh_agree(mesh, "the data", "path=a\nbytes=1\n"));
  EXPECT_STATUS(
      fsdp2_mesh_agree(mesh, "the data", rank == 0 ? "path=a\nbytes=1\n" : "path=a\nbytes=2\n"),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("the data: the ranks differ in bytes: rank 0 has 1, rank 1 has 2");
  EXPECT_STATUS(fsdp2_mesh_agree(mesh, rank == 0 ? "the data" : "the model", "bytes=1\n"),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("rank 0 has the data, rank 1 has the model");
  EXPECT_STATUS(fsdp2_mesh_agree(mesh, rank == 0 ? "the data" : NULL, "bytes=1\n"),
                rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
}
static void ranks_that_differ_are_told_where(void) { on_ranks("agree", 2, 0, agree); }

static void fail_alone(fsdp2_mesh mesh, int rank) {
  if (rank == 1) {
    EXPECT_OK(fsdp2_mesh_fail(mesh, "no more coffee"));
  } else {
    fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
    EXPECT_STATUS(fsdp2_mesh_barrier(mesh), FSDP2_E_PEER_FAILED);
    EXPECT_MESSAGE("rank 1: no more coffee");
    fsdp2_error_last(&info);
    EXPECT(info.rank == 0);
  }
}
static void a_failure_told_by_one_rank_ends_the_others_waits(void) {
  on_ranks("fail", 2, 0, fail_alone);
}

static void look_around(fsdp2_mesh mesh, int rank) {
  const char *ddp[1] = {"ddp"}, *turned[2] = {"fsdp", "ddp"}, *none[1] = {"tp"};
  fsdp2_mesh sub = {0}, other = {5};
  fsdp2_mesh_info info;
  char text[64], expected[64];
  size_t needed = 0;
  double value = rank;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  EXPECT(info.backend == FSDP2_BACKEND_THREAD && info.rank == rank && info.world_size == 4);
  EXPECT(info.n_dims == 2 && info.shape[0] == 2 && info.shape[1] == 2);
  EXPECT(info.coordinate[0] == rank / 2 && info.coordinate[1] == rank % 2);
  snprintf(expected, sizeof(expected), "Mesh(ddp=2, fsdp=2) rank %d at (%d, %d)", rank, rank / 2,
           rank % 2);
  EXPECT_OK(fsdp2_mesh_describe(mesh, text, sizeof(text), &needed));
  EXPECT(strcmp(text, expected) == 0);
  EXPECT_STATUS(fsdp2_mesh_get_submesh(mesh, none, 1, &other), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, ddp, 1, &sub));
  EXPECT_OK(fsdp2_mesh_get_dim_name(sub, 0, text, sizeof(text), &needed));
  EXPECT(strcmp(text, "ddp") == 0);
  EXPECT_OK(fsdp2_mesh_all_reduce(sub, &value, 1, FSDP2_REDUCE_SUM));
  EXPECT(value == 2 * (rank % 2) + 2); /* ranks r and r + 2 */
  EXPECT_OK(fsdp2_mesh_barrier(sub));
  EXPECT_OK(fsdp2_mesh_agree(sub, "a", rank % 2 == 0 ? "b=1" : "b=2")); /* alike on its own ranks */
  EXPECT_OK(fsdp2_mesh_destroy(sub));
  EXPECT_STATUS(fsdp2_mesh_get_submesh(mesh, turned, 2, &other), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("(fsdp, ddp) are not in the mesh's own order, (ddp, fsdp)");
  EXPECT(other.id == 5);
}
static void a_mesh_of_two_dims_has_submeshes(void) { on_ranks("dims", 4, 2, look_around); }

static void choose_dtype(fsdp2_mesh mesh, int rank) {
  int32_t dtype = -1;
  double same = 0;
  EXPECT_OK(fsdp2_mesh_choose_dtype(mesh, &dtype));
  EXPECT(dtype == FSDP2_DTYPE_BF16 || dtype == FSDP2_DTYPE_F32); /* no GPU, no fp16 */
  same = dtype;
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &same, 1, FSDP2_REDUCE_AVERAGE));
  EXPECT(same == dtype);
  EXPECT_STATUS(fsdp2_mesh_choose_dtype(mesh, rank == 0 ? &dtype : NULL),
                rank == 0 ? FSDP2_E_PEER_FAILED : FSDP2_E_NULL_ARGUMENT);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
}
static void ranks_choose_one_dtype_to_compute_in(void) {
  on_ranks("choose-dtype", 2, 0, choose_dtype);
}

int main(void) {
  RUN(numbers_are_reduced_over_all_ranks);
  RUN(a_reduction_of_different_sizes_fails_on_all_ranks);
  RUN(ranks_that_differ_are_told_where);
  RUN(a_failure_told_by_one_rank_ends_the_others_waits);
  RUN(a_mesh_of_two_dims_has_submeshes);
  RUN(ranks_choose_one_dtype_to_compute_in);
  return harness_result();
}
