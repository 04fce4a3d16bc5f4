/* Meshes that are slices of a job: their ranks alone make their calls, at their own time, and what
 * they compute is what they would as a job of their own. Ranks are threads. */
#define _POSIX_C_SOURCE 200809L
#include "tests/capi/slices.h"

/* By stage, as a job of its own. */
static double alone[kMaxStages][kSteps + 1];
static int stage_alone;

static void train_alone(fsdp2_mesh mesh, int rank) {
  double losses[kSteps + 1];
  char name[32];
  snprintf(name, sizeof(name), "alone-%d", stage_alone);
  train_stage(mesh, stage_alone, rank, temporary_path(name), losses);
  if (rank == 0) {
    memcpy(alone[stage_alone], losses, sizeof(losses));
  }
}

static void record_alone(int stages, int ranks) {
  char job[32];
  for (stage_alone = 0; stage_alone < stages; ++stage_alone) {
    snprintf(job, sizeof(job), "alone-%d-of-%d", stage_alone, ranks);
    on_ranks(job, ranks, 0, train_alone);
  }
}

static int is_there(const char* directory, const char* file) {
  char path[1200];
  snprintf(path, sizeof(path), "%s/%s", directory, file);
  return access(path, F_OK) == 0;
}

/* ---- different work */

static void train_stages(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 2, 2), stage = line_of(grid, "dp");
  double losses[kSteps + 1];
  char name[32];
  const char* path;
  snprintf(name, sizeof(name), "stage-%d", rank / 2);
  path = temporary_path(name);
  if (rank >= 2) {
    sleep_ms(200);
  }
  train_stage(stage, rank / 2, rank % 2, path, losses);
  EXPECT(memcmp(losses, alone[rank / 2], sizeof(losses)) == 0);
  /* The ranks of the slice number the files. */
  EXPECT(is_there(path, "__0_0.distcp") && is_there(path, "__1_0.distcp"));
  EXPECT(!is_there(path, "__2_0.distcp") && !is_there(path, "__3_0.distcp"));
  EXPECT_OK(fsdp2_mesh_barrier(job));
  EXPECT_OK(fsdp2_mesh_destroy(stage));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void stages_train_and_save_different_modules_as_if_alone(void) {
  record_alone(2, 2);
  on_ranks("stages", 4, 0, train_stages);
}

/* The upper row saves twice while the lower one has not begun, so that what they count differs. */
static void save_unevenly(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 2, 2), row = line_of(grid, "dp");
  double losses[kSteps + 1];
  int i;
  for (i = 0; i < (rank < 2 ? 2 : 1); ++i) {
    char name[32];
    snprintf(name, sizeof(name), "row-%d-%d", rank / 2, i);
    train_stage(row, 0, rank % 2, temporary_path(name), losses);
    EXPECT(memcmp(losses, alone[0], sizeof(losses)) == 0);
  }
  /* Then all of them together, over the whole job. */
  EXPECT_OK(fsdp2_mesh_barrier(grid));
  train_stage(grid, 0, rank, temporary_path("whole"), losses);
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void rows_save_to_their_own_directories_and_then_all_together(void) {
  record_alone(1, 2);
  on_ranks("rows", 4, 0, save_unevenly);
}

static void train_one_row(fsdp2_mesh job, int rank) {
  static const int32_t lower[2] = {0, 1}, upper[2] = {2, 3};
  static const int64_t pair[1] = {2};
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh row = {0};
  double losses[kSteps + 1], sum = rank;
  options.n_dims = 1;
  options.shape = pair;
  options.ranks = rank < 2 ? lower : upper;
  options.n_ranks = 2;
  options.device_type = test_device();
  EXPECT_OK(fsdp2_mesh_create_in(job, &options, &row));
  if (rank >= 2) {
    train_stage(row, 1, rank - 2, temporary_path("one-row"), losses);
    EXPECT(memcmp(losses, alone[1], sizeof(losses)) == 0);
    EXPECT_OK(fsdp2_mesh_all_reduce(row, &sum, 1, FSDP2_REDUCE_SUM));
    EXPECT(sum == 5.0);
    EXPECT_OK(fsdp2_mesh_agree(row, "what", "key=value"));
    EXPECT_STATUS(fsdp2_mesh_agree(row, "what", rank == 2 ? "key=2" : "key=3"),
                  FSDP2_E_INVALID_ARGUMENT);
    EXPECT_MESSAGE("rank 2 has 2, rank 3 has 3");
  }
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_barrier(job));
}
static void one_row_works_while_the_others_do_nothing(void) {
  record_alone(2, 2);
  on_ranks("one-row", 4, 0, train_one_row);
}

/* Slices of one rank: in each of them a rank is alone. */
static void train_alone_in_a_job(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 3, 1), stage = line_of(grid, "dp");
  double losses[kSteps + 1];
  char name[32];
  snprintf(name, sizeof(name), "lonely-%d", rank);
  if (rank != 1) {
    train_stage(stage, rank, 0, temporary_path(name), losses);
    EXPECT(memcmp(losses, alone[rank], sizeof(losses)) == 0);
  }
  EXPECT_OK(fsdp2_mesh_barrier(grid));
  EXPECT_OK(fsdp2_mesh_destroy(stage));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void a_rank_may_be_a_slice_of_its_own(void) {
  record_alone(3, 1);
  on_ranks("lonely", 3, 0, train_alone_in_a_job);
}

/* The lower row lays its ranks out anew, and flattens them again, without the upper one. */
static void make_meshes(fsdp2_mesh job, int rank) {
  static const char* const kBoth[2] = {"ddp", "fsdp"};
  const fsdp2_mesh grid = grid_in(job, 2, 4), row = line_of(grid, "dp");
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  fsdp2_mesh square = {0}, flat = {0};
  if (rank < 4) {
    double sum = rank;
    options.fsdp_size = 2;
    EXPECT_OK(fsdp2_mesh_create_in(row, &options, &square));
    EXPECT(place_of(square).coordinate[0] == rank / 2 &&
           place_of(square).coordinate[1] == rank % 2);
    EXPECT_OK(fsdp2_mesh_flatten(square, kBoth, 2, "all", &flat));
    EXPECT_OK(fsdp2_mesh_all_reduce(flat, &sum, 1, FSDP2_REDUCE_SUM));
    EXPECT(sum == 6.0);
    EXPECT_OK(fsdp2_mesh_destroy(flat));
    EXPECT_OK(fsdp2_mesh_destroy(square));
  }
  EXPECT_OK(fsdp2_mesh_barrier(job));
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void a_slice_makes_meshes_of_its_own_ranks(void) { on_ranks("meshes", 8, 0, make_meshes); }

/* ---- failures */

static _Atomic int first_stage_has_failed;

static void expect_told(fsdp2_status status) {
  EXPECT(status == FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("rank 1: the disk of rank 1 is full");
}

static void fail_in_one_stage(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 2, 2), row = line_of(grid, "dp"), line = line_of(grid, "pp");
  struct stage stage = start_stage(row, rank / 2);
  const time_t start = time(NULL);
  double loss = 0.0;
  int i;
  EXPECT_OK(run_stage(&stage, rank % 2, &loss));
  if (rank == 1) {
    EXPECT_OK(fsdp2_mesh_fail(row, "the disk of rank 1 is full"));
  } else if (rank == 0) {
    expect_told(run_stage(&stage, 0, &loss)); /* while it waits for rank 1, which does not come */
    first_stage_has_failed = 1;
  } else {
    while (!first_stage_has_failed) {
      sleep_ms(1);
    }
    for (i = 0; i < 3; ++i) { /* what has happened there is none of their business */
      EXPECT_OK(run_stage(&stage, rank % 2, &loss));
    }
    EXPECT_OK(fsdp2_checkpoint_save(stage.shard, stage.optimizer, stage.step, (fsdp2_loader){0},
                                    temporary_path("survivors"), NULL));
  }
  expect_told(fsdp2_mesh_barrier(grid)); /* until they need the whole job */
  expect_told(fsdp2_mesh_barrier(line)); /* or a rank that has failed */
  EXPECT_STATUS(fsdp2_mesh_barrier(row), rank < 2 ? FSDP2_E_PEER_FAILED : FSDP2_OK);
  EXPECT(time(NULL) - start < 30); /* long before the time-out */
  end_stage(&stage);
  EXPECT_OK(fsdp2_mesh_destroy(line));
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void a_failure_ends_the_slice_and_what_needs_its_ranks(void) {
  first_stage_has_failed = 0;
  on_ranks("failure", 4, 0, fail_in_one_stage);
}

/* In backward, rank 3 waits for rank 2 in a unit of their own slice, while rank 2 has left: it
 * found in a unit of all ranks that the other slice has failed. */
enum { kUnitParameters = 9 };
static const char *const kUnitOfAll = "model.layers.2", *const kUnitOfSlice = "model.layers.1";
static _Atomic int rank_3_goes_on, other_slice_has_failed, ranks_told;

struct seat {
  fsdp2_mesh row;
  int rank, gathered, sent;
};

static void wait_for(_Atomic int* flag) {
  while (!*flag) {
    sleep_ms(1);
  }
}

static fsdp2_status send_chunk(const fsdp2_gather_info* gather, fsdp2_tensor chunk,
                               fsdp2_tensor* out, void* user_data) {
  struct seat* seat = (struct seat*)user_data;
  const int of_slice = gather->shard_ranks == 2;
  *out = chunk;
  seat->sent += of_slice;
  if (seat->rank == 3 && seat->sent == 2 * kUnitParameters) {
    rank_3_goes_on = 1;
  }
  return FSDP2_OK;
}

/* The last time, in backward, ranks 1 and 2 let the others go on before them. */
static fsdp2_status take_chunks(const fsdp2_gather_info* gather, fsdp2_tensor pieces,
                                fsdp2_tensor chunks, void* user_data) {
  struct seat* seat = (struct seat*)user_data;
  float values[kTinyWidth * 24];
  fsdp2_tensor_info info;
  const int of_all = gather->shard_ranks == 4;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_tensor_get_info(pieces, &info));
  EXPECT(info.n_bytes <= (int64_t)sizeof(values));
  EXPECT_OK(fsdp2_tensor_read(pieces, values, info.n_bytes));
  seat->gathered += of_all;
  if (of_all && seat->gathered == 2 * kUnitParameters) {
    if (seat->rank == 1) {
      wait_for(&rank_3_goes_on);
      sleep_ms(200);
      EXPECT_OK(fsdp2_mesh_fail(seat->row, "the disk of rank 1 is full"));
      other_slice_has_failed = 1;
    } else if (seat->rank == 2) {
      wait_for(&other_slice_has_failed);
    }
  }
  return fsdp2_tensor_write(chunks, values, info.n_bytes);
}

static void fail_outside_of_a_units_slice(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 2, 2);
  const fsdp2_module module = tiny_model();
  fsdp2_shard_options options = FSDP2_SHARD_OPTIONS_INIT;
  struct seat seat = {line_of(grid, "dp"), rank, 0, 0};
  const time_t start = time(NULL);
  fsdp2_shard shard;
  fsdp2_tensor loss;
  options.prefetch = -1;
  EXPECT_OK(fsdp2_shard_make_unit(module, seat.row, &kUnitOfSlice, 1, NULL));
  shard = shard_with(module, job, &options);
  EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, kUnitOfAll, send_chunk, take_chunks, &seat,
                                                 NULL));
  EXPECT_OK(fsdp2_shard_set_all_gather_extension(shard, kUnitOfSlice, send_chunk, take_chunks,
                                                 &seat, NULL));
  loss = tiny_loss(module, 0);
  expect_told(fsdp2_tensor_backward(loss));
  ++ranks_told;
  while (ranks_told < 4 && time(NULL) - start < 30) { /* that one leaves tells the others, too */
    sleep_ms(1);
  }
  EXPECT(ranks_told == 4); /* long before the time-out */
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(seat.row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void a_failure_reaches_those_who_wait_in_a_units_own_slice(void) {
  rank_3_goes_on = other_slice_has_failed = ranks_told = 0;
  on_ranks("unit-slice", 4, 0, fail_outside_of_a_units_slice);
}

/* One rank's arguments are wrong: its slice is told, and stays usable. */
static void refuse_in_one_stage(fsdp2_mesh job, int rank) {
  const fsdp2_mesh grid = grid_in(job, 2, 2), row = line_of(grid, "dp");
  if (rank >= 2) {
    const fsdp2_module module = stage_model(0), gone = {0};
    fsdp2_shard shard = {0};
    EXPECT_STATUS(fsdp2_shard_create(rank == 3 ? gone : module, row, NULL, &shard),
                  rank == 3 ? FSDP2_E_INVALID_HANDLE : FSDP2_E_PEER_FAILED);
    EXPECT_MESSAGE(rank == 3 ? "module" : "rank 3 failed: ");
    EXPECT_OK(fsdp2_shard_create(module, row, NULL, &shard));
    destroy_tiny(module, shard);
  }
  EXPECT_OK(fsdp2_mesh_barrier(grid));
  EXPECT_OK(fsdp2_mesh_destroy(row));
  EXPECT_OK(fsdp2_mesh_destroy(grid));
}
static void a_refusal_is_told_to_the_slice_alone(void) {
  on_ranks("refusal", 4, 0, refuse_in_one_stage);
}

int main(void) {
  RUN(stages_train_and_save_different_modules_as_if_alone);
  RUN(rows_save_to_their_own_directories_and_then_all_together);
  RUN(one_row_works_while_the_others_do_nothing);
  RUN(a_rank_may_be_a_slice_of_its_own);
  RUN(a_slice_makes_meshes_of_its_own_ranks);
  RUN(a_failure_ends_the_slice_and_what_needs_its_ranks);
  RUN(a_failure_reaches_those_who_wait_in_a_units_own_slice);
  RUN(a_refusal_is_told_to_the_slice_alone);
  return harness_result();
}
