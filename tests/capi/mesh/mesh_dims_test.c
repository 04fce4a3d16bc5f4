/* Meshes of several dims through the C ABI: slices, groups, flattening, tensors along a dim. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/ranks.h"

static const char *const kDpPpCp[3] = {"dp", "pp", "cp"}, *const kDpCp[2] = {"dp", "cp"};

/* Another mesh of the same job. */
static fsdp2_mesh mesh_in(fsdp2_mesh job, const int64_t* shape, const char* const* names,
                          int32_t n_dims) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  options.n_dims = n_dims;
  options.shape = shape;
  options.names = names;
  EXPECT_OK(fsdp2_mesh_create_in(job, &options, &mesh));
  return mesh;
}

static int has_ranks(fsdp2_mesh mesh, const int32_t* expected, size_t n) {
  int32_t ranks[8];
  size_t needed = 0;
  EXPECT_OK(fsdp2_mesh_get_ranks(mesh, ranks, 8, &needed));
  return needed == n && memcmp(ranks, expected, n * sizeof(*ranks)) == 0;
}

static fsdp2_group_info group_of(fsdp2_mesh mesh, int32_t dim) {
  fsdp2_group_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_group(mesh, dim, &info));
  return info;
}

static void slice(fsdp2_mesh job, int rank) {
  static const int64_t shape[3] = {2, -1, 2};
  static const int32_t near[4] = {0, 1, 4, 5}, far[4] = {2, 3, 6, 7};
  const char *const turned[2] = {"cp", "dp"}, *const cp[1] = {"cp"};
  const fsdp2_mesh mesh = mesh_in(job, shape, kDpPpCp, 3);
  fsdp2_mesh sub = {0}, root = {0}, line = {0}, made = {0};
  fsdp2_device_memory memory;
  int32_t dims[2], index = -1, equal = -1;
  uint64_t hash = 0, other_hash = 0;
  size_t needed = 0;
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, kDpCp, 2, &sub));
  EXPECT(has_ranks(sub, rank / 2 % 2 == 0 ? near : far, 4));
  EXPECT_STATUS(fsdp2_mesh_get_submesh(mesh, turned, 2, &line), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("(cp, dp) are not in the mesh's own order, (dp, pp, cp)");
  EXPECT_OK(fsdp2_mesh_get_dim_index(mesh, "cp", &index));
  EXPECT(index == 2);
  EXPECT_STATUS(fsdp2_mesh_get_dim_index(mesh, "tp", &index), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("no dim 'tp', there are: dp, pp, cp");
  EXPECT_OK(fsdp2_mesh_get_root(sub, dims, 2, &needed, &root));
  EXPECT(needed == 2 && dims[0] == 0 && dims[1] == 2);
  EXPECT_OK(fsdp2_mesh_is_equal(root, mesh, &equal));
  EXPECT(equal == 1);
  EXPECT_STATUS(fsdp2_mesh_get_root(mesh, dims, 2, &needed, &line), FSDP2_E_NOT_FOUND);
  /* One group, however it is reached. */
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, cp, 1, &line));
  EXPECT_OK(fsdp2_mesh_from_group(mesh, 2, "cp", &made));
  EXPECT(group_of(mesh, 2).id == group_of(line, 0).id &&
         group_of(mesh, 2).id == group_of(made, 0).id &&
         group_of(mesh, 2).id != group_of(mesh, 0).id);
  EXPECT(group_of(mesh, 2).rank == rank % 2 && group_of(mesh, 2).size == 2);
  EXPECT_OK(fsdp2_mesh_is_equal(line, made, &equal));
  EXPECT_OK(fsdp2_mesh_get_hash(line, &hash));
  EXPECT_OK(fsdp2_mesh_get_hash(made, &other_hash));
  EXPECT(equal == 1 && hash == other_hash);
  EXPECT_OK(fsdp2_mesh_is_equal(line, sub, &equal));
  EXPECT(equal == 0);
  memory.struct_size = (uint32_t)sizeof(memory);
  EXPECT_STATUS(fsdp2_mesh_get_device_memory(mesh, &memory), FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("device memory: expected a device, found the host");
  EXPECT_OK(fsdp2_mesh_get_group_ranks(mesh, 0, dims, 2, &needed));
  EXPECT(needed == 2 && dims[0] == rank % 4 && dims[1] == rank % 4 + 4);
  EXPECT_STATUS(fsdp2_mesh_get_group_ranks(mesh, 0, dims, 1, &needed), FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  EXPECT_OK(fsdp2_mesh_barrier(sub)); /* needs no more than itself */
  EXPECT_OK(fsdp2_mesh_destroy(sub));
  EXPECT_OK(fsdp2_mesh_destroy(root));
  EXPECT_OK(fsdp2_mesh_destroy(line));
  EXPECT_OK(fsdp2_mesh_destroy(made));
}
static void slices_know_their_ranks_groups_and_root(void) { on_ranks("slice", 8, 0, slice); }

static void flatten(fsdp2_mesh job, int rank) {
  static const int64_t shape[3] = {2, 2, 2};
  const char *const pair[1] = {"dp_cp"}, *const both[2] = {"dp", "pp"};
  const fsdp2_mesh mesh = mesh_in(job, shape, kDpPpCp, 3);
  fsdp2_mesh flat = {0}, again = {0};
  int32_t equal = 0;
  double sum = rank;
  EXPECT_OK(fsdp2_mesh_flatten(mesh, kDpCp, 2, NULL, &flat));
  EXPECT(group_of(flat, 0).size == 4 && group_of(flat, 0).rank == rank / 4 * 2 + rank % 2);
  EXPECT_OK(fsdp2_mesh_all_reduce(flat, &sum, 1, FSDP2_REDUCE_SUM));
  EXPECT(sum == (rank / 2 % 2 == 0 ? 10 : 18));
  EXPECT_OK(fsdp2_mesh_get_submesh(mesh, pair, 1, &again));
  EXPECT_OK(fsdp2_mesh_is_equal(flat, again, &equal));
  EXPECT(equal == 1 && group_of(flat, 0).id == group_of(again, 0).id);
  EXPECT_OK(fsdp2_mesh_destroy(again));
  EXPECT_STATUS(fsdp2_mesh_flatten(mesh, both, 2, "cp", &again), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_OK(fsdp2_mesh_destroy(flat));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}
static void flattened_dims_have_a_group_of_their_own(void) { on_ranks("flat", 8, 0, flatten); }

static void table(fsdp2_mesh job, int rank) {
  static const int32_t ranks[4] = {3, 1, 2, 0}, lower[2] = {0, 1}, upper[2] = {2, 3};
  static const int64_t square[2] = {2, 2}, pair[1] = {2};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh mesh = {0};
  fsdp2_mesh_info info;
  size_t needed = 5;
  char name[8] = "?";
  double sum = rank;
  options.n_dims = 2;
  options.shape = square;
  options.ranks = ranks;
  options.n_ranks = 4;
  EXPECT_OK(fsdp2_mesh_create_in(job, &options, &mesh));
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  EXPECT(info.coordinate[0] == (rank == 2 || rank == 0) && info.coordinate[1] == (rank < 2));
  EXPECT_OK(fsdp2_mesh_get_dim_name(mesh, 0, name, sizeof(name), &needed));
  EXPECT(name[0] == '\0');
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  options.n_dims = 1;
  options.shape = pair;
  options.ranks = rank < 2 ? lower : upper;
  options.n_ranks = 2;
  EXPECT_OK(fsdp2_mesh_create_in(job, &options, &mesh));
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &sum, 1, FSDP2_REDUCE_SUM));
  EXPECT(sum == (rank < 2 ? 1 : 5));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  options.device_type = "cpu:0";
  EXPECT_STATUS(fsdp2_mesh_create_in(job, &options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("device type 'cpu:0' with an index");
  if (test_device() == NULL) { /* there is no GPU, or nobody is to use it */
    options.device_type = "cuda";
    EXPECT_STATUS(fsdp2_mesh_create_in(job, &options, &mesh), FSDP2_E_UNSUPPORTED);
    EXPECT_MESSAGE("mesh: cuda: ");
  }
  options.device_type = NULL;
  options.rank = rank;
  EXPECT_STATUS(fsdp2_mesh_create_in(job, &options, &mesh), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("are the job's");
}
static void tables_of_ranks_make_meshes(void) { on_ranks("table", 4, 0, table); }

static fsdp2_tensor counting(int64_t rows, int64_t columns, int64_t first) {
  int64_t values[64];
  const int64_t shape[2] = {rows, columns};
  int64_t i;
  for (i = 0; i < rows * columns; ++i) {
    values[i] = first + i;
  }
  return on_test_device(int64_tensor(values, shape, 2));
}

/* Destroys the tensor. */
static int holds(fsdp2_tensor tensor, int64_t rows, int64_t columns, int64_t first, int64_t step) {
  int64_t values[64];
  fsdp2_tensor_info info;
  int64_t i;
  int good;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(tensor, &info));
  good = info.n_dims == 2 && info.shape[0] == rows && info.shape[1] == columns;
  EXPECT_OK(fsdp2_tensor_read(tensor, values, info.n_bytes));
  for (i = 0; good && i < rows * columns; ++i) {
    good = values[i] == first + step * i;
  }
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return good;
}

/* 5 rows of 3 over 4 ranks: 2, 2, 1 and 0. */
static void move(fsdp2_mesh mesh, int rank) {
  const int64_t rows = rank < 2 ? 2 : rank == 2 ? 1 : 0, first = rank < 3 ? 6 * rank : 15;
  fsdp2_tensor whole = counting(5, 3, 0), out = {0}, piece = {0}, none = {0};
  fsdp2_tensor own = counting(2, 2, 10 * rank);
  EXPECT_OK(fsdp2_mesh_scatter(mesh, 0, rank == 0 ? whole : none, 0, &piece));
  EXPECT_OK(fsdp2_mesh_all_gather(mesh, 0, piece, 0, &out));
  EXPECT(holds(out, 5, 3, 0, 1));
  EXPECT(holds(piece, rows, 3, first, 1));
  EXPECT_OK(fsdp2_mesh_reduce_scatter(mesh, 0, whole, 0, FSDP2_REDUCE_SUM, &out));
  EXPECT(holds(out, rows, 3, 4 * first, 4));
  EXPECT_OK(fsdp2_mesh_broadcast(mesh, 0, own));
  EXPECT_OK(fsdp2_mesh_all_reduce_tensor(mesh, 0, own, FSDP2_REDUCE_SUM));
  EXPECT(holds(own, 2, 2, 0, 4));
  EXPECT_OK(fsdp2_tensor_destroy(whole));
}
static void tensors_move_along_a_dim(void) { on_ranks("move", 4, 0, move); }

static void misfit(fsdp2_mesh mesh, int rank) {
  const fsdp2_tensor tensor = counting(2, rank == 1 ? 4 : 3, 0);
  fsdp2_tensor out = {7}, gone = {0};
  EXPECT_STATUS(fsdp2_mesh_all_gather(mesh, 0, tensor, 0, &out), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("rank 0 has Long (2, 3), rank 1 has Long (2, 4)");
  EXPECT_STATUS(fsdp2_mesh_broadcast(mesh, 0, rank == 1 ? gone : tensor),
                rank == 1 ? FSDP2_E_INVALID_HANDLE : FSDP2_E_PEER_FAILED);
  EXPECT_STATUS(fsdp2_mesh_scatter(mesh, 0, tensor, 0, &out),
                rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED);
  EXPECT(out.id == 7);
  EXPECT_OK(fsdp2_mesh_barrier(mesh)); /* the job goes on */
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}
static void tensors_that_do_not_fit_are_refused_on_all_ranks(void) {
  on_ranks("misfit", 2, 0, misfit);
}

int main(void) {
  RUN(slices_know_their_ranks_groups_and_root);
  RUN(flattened_dims_have_a_group_of_their_own);
  RUN(tables_of_ranks_make_meshes);
  RUN(tensors_move_along_a_dim);
  RUN(tensors_that_do_not_fit_are_refused_on_all_ranks);
  return harness_result();
}
