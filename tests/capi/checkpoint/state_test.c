/* States of a program's own: chunks and values, saved, loaded and gathered. */
#include "tests/capi/ranks.h"

static void add_rows(fsdp2_state state, const char* name, int64_t all, int64_t first, int64_t rows,
                     int64_t* values) {
  const int64_t shape[2] = {all, 2}, offsets[2] = {first, 0}, size[2] = {rows, 2};
  const fsdp2_tensor chunk = int64_tensor(values, size, 2);
  EXPECT_OK(fsdp2_state_add_tensor(state, name, shape, offsets, 2, chunk));
  EXPECT_OK(fsdp2_tensor_destroy(chunk));
}

static void expect_values(fsdp2_state state, const char* name, const int64_t* expected, size_t n) {
  fsdp2_tensor tensor = {0};
  int64_t found[16];
  EXPECT_OK(fsdp2_state_get_tensor(state, name, &tensor));
  EXPECT_OK(fsdp2_tensor_read(tensor, found, n * sizeof(found[0])));
  EXPECT(memcmp(found, expected, n * sizeof(found[0])) == 0);
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
}

static void expect_json(fsdp2_state state, const char* name, const char* expected) {
  char text[256] = "";
  size_t needed = 0;
  EXPECT_OK(fsdp2_state_get_value(state, name, text, sizeof(text), &needed));
  if (!EXPECT(strcmp(text, expected) == 0)) {
    fprintf(stderr, "  expected %s, found %s\n", expected, text);
  }
}

/* Rows 0, 1, 2 on rank 0 and 3, 4 on rank 1; then 0 and 1 to 4. */
static void save_and_load(fsdp2_mesh mesh, int rank) {
  int64_t all[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, none[8] = {0};
  int format;
  for (format = 0; format < 3; ++format) {
    const char* path = temporary_path(format == 0 ? "one" : format == 1 ? "many" : "safe");
    fsdp2_state_save_options options = FSDP2_STATE_SAVE_OPTIONS_INIT;
    fsdp2_state saved = {0}, loaded = {0};
    options.safetensors = format == 2;
    options.threads = format == 1 ? 2 : 1;
    options.file_per_tensor = format == 1;
    EXPECT_OK(fsdp2_state_create(mesh, &saved));
    EXPECT_OK(fsdp2_state_create(mesh, &loaded));
    add_rows(saved, "free.rows", 5, rank == 0 ? 0 : 3, rank == 0 ? 3 : 2, all + 6 * rank);
    add_rows(loaded, "free.rows", 5, rank, rank == 0 ? 1 : 4, none);
    if (format != 2) {
      EXPECT_OK(fsdp2_state_add_value(saved, "counters.losses", "[1.5, null, \"x\", true]"));
      EXPECT_OK(fsdp2_state_add_value(loaded, "counters.losses", "0"));
    }
    EXPECT_OK(fsdp2_state_save(saved, path, &options));
    EXPECT_OK(fsdp2_state_load(loaded, path));
    expect_values(loaded, "free.rows", all + 2 * rank, rank == 0 ? 2 : 8);
    if (format != 2) {
      expect_json(loaded, "counters.losses", "[1.5,null,\"x\",true]");
    }
    options.no_overwrite = 1;
    EXPECT_STATUS(fsdp2_state_save(saved, path, &options),
                  rank == 0 ? FSDP2_E_IO : FSDP2_E_PEER_FAILED);
    EXPECT_MESSAGE("already exists");
    EXPECT_OK(fsdp2_state_destroy(saved));
    EXPECT_OK(fsdp2_state_destroy(loaded));
  }
}
static void chunks_of_any_size_are_saved_and_loaded(void) {
  on_ranks("save-and-load", 2, 0, save_and_load);
}

static void gather(fsdp2_mesh mesh, int rank) {
  int64_t all[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  int rank0_only;
  fsdp2_state state = {0};
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  add_rows(state, "rows", 5, rank == 0 ? 0 : 3, rank == 0 ? 3 : 2, all + 6 * rank);
  EXPECT_OK(fsdp2_state_add_value(state, "step", "7"));
  for (rank0_only = 0; rank0_only < 2; ++rank0_only) {
    fsdp2_state full = {0};
    size_t count = 99, needed = 0;
    char name[16];
    EXPECT_OK(fsdp2_state_gather(state, rank0_only, &full));
    EXPECT_OK(fsdp2_state_get_count(full, &count));
    if (rank0_only && rank == 1) {
      EXPECT(count == 0);
    } else {
      EXPECT(count == 2);
      EXPECT_OK(fsdp2_state_get_name(full, 1, name, sizeof(name), &needed));
      EXPECT(strcmp(name, "step") == 0);
      expect_values(full, "rows", all, 10);
      expect_json(full, "step", "7");
    }
    EXPECT_OK(fsdp2_state_destroy(full));
  }
  EXPECT_OK(fsdp2_state_destroy(state));
}
static void all_ranks_or_the_first_gather_whole_tensors(void) { on_ranks("gather", 2, 0, gather); }

/* A run goes on from a full state in memory as from a checkpoint. */
static void go_on(fsdp2_mesh mesh, int rank) {
  int flat;
  for (flat = 0; flat < 2; ++flat) {
    struct job job = start_job(mesh);
    struct job other = start_job(mesh);
    fsdp2_load_options options = FSDP2_LOAD_OPTIONS_INIT;
    fsdp2_state state = {0}, full = {0};
    char text[64];
    size_t needed = 0;
    double expected;
    take_step(job.loader, job.step);
    EXPECT_OK(
        fsdp2_checkpoint_get_state(job.shard, job.optimizer, job.step, job.loader, flat, &state));
    EXPECT_OK(fsdp2_state_get_value(
        state, flat ? "optim.param_groups.lm_head.weight.lr" : "optim.param_groups.0.lr", text,
        sizeof(text), &needed));
    EXPECT_OK(fsdp2_state_gather(state, flat, &full));
    EXPECT_OK(fsdp2_state_destroy(state));
    options.from_rank0 = flat;
    EXPECT_OK(fsdp2_checkpoint_set_state(other.shard, other.optimizer, other.step, other.loader,
                                         flat && rank == 1 ? (fsdp2_state){0} : full, &options));
    EXPECT_OK(fsdp2_state_destroy(full));
    expected = take_step(job.loader, job.step).loss;
    EXPECT(take_step(other.loader, other.step).loss == expected);
    end_job(&other);
    end_job(&job);
  }
}
static void a_run_goes_on_from_a_state_in_memory(void) { on_ranks("go-on", 2, 0, go_on); }

/* "[[...1...]]" of so many lists in memory of the caller's. */
static const char* nested(char* text, int depth) {
  memset(text, '[', (size_t)depth);
  text[depth] = '1';
  memset(text + depth + 1, ']', (size_t)depth);
  text[2 * depth + 1] = '\0';
  return text;
}

static void values_may_be_64_lists_deep(void) {
  enum { kDepth = 64, kHostile = 100000 };
  const fsdp2_mesh mesh = lone_mesh();
  const char* path = temporary_path("deep");
  char deep[2 * kDepth + 4], found[2 * kDepth + 4];
  char* hostile = (char*)malloc(2 * kHostile + 2);
  fsdp2_state state = {0};
  size_t needed = 0;
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  EXPECT_OK(fsdp2_state_add_value(state, "deep", nested(deep, kDepth)));
  EXPECT_OK(fsdp2_state_save(state, path, NULL));
  EXPECT_OK(fsdp2_state_load(state, path));
  EXPECT_OK(fsdp2_state_get_value(state, "deep", found, sizeof(found), &needed));
  EXPECT(strcmp(found, deep) == 0);
  EXPECT_STATUS(fsdp2_state_add_value(state, "more", nested(deep, kDepth + 1)),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("json: expected lists at most 64 deep");
  EXPECT_STATUS(fsdp2_state_add_value(state, "more", nested(hostile, kHostile)),
                FSDP2_E_INVALID_ARGUMENT);
  memset(hostile, '[', kHostile);
  hostile[kHostile] = '\0';
  EXPECT_STATUS(fsdp2_state_add_value(state, "more", hostile), FSDP2_E_INVALID_ARGUMENT);
  free(hostile);
  EXPECT_OK(fsdp2_state_destroy(state));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

static void mistakes_are_named(void) {
  const int64_t shape[2] = {4, 2}, inside[2] = {2, 0}, outside[2] = {3, 0}, size[2] = {2, 2};
  const int64_t values[4] = {1, 2, 3, 4};
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_tensor chunk = int64_tensor(values, size, 2);
  fsdp2_state state = {0};
  fsdp2_tensor out = {0};
  char text[16];
  size_t needed = 0;
  EXPECT_OK(fsdp2_state_create(mesh, &state));
  EXPECT_STATUS(fsdp2_state_add_tensor(state, "a", shape, outside, 2, chunk),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("chunk: expected one inside [4, 2], found [2, 2] at [3, 0]");
  EXPECT_OK(fsdp2_state_add_tensor(state, "a", shape, inside, 2, chunk));
  EXPECT_STATUS(fsdp2_state_add_value(state, "b", "{\"c\": 1}"), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("found an object");
  EXPECT_STATUS(fsdp2_state_add_value(state, "b", "[1"), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_state_get_tensor(state, "b", &out), FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("the state has no tensor b");
  EXPECT_STATUS(fsdp2_state_get_value(state, "a", text, sizeof(text), &needed), FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_state_gather(state, 0, &state), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("do not hold all of it");
  EXPECT_STATUS(fsdp2_state_load(state, temporary_path("nothing")), FSDP2_E_NOT_FOUND);
  EXPECT_OK(fsdp2_tensor_destroy(chunk));
  EXPECT_OK(fsdp2_state_destroy(state));
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(chunks_of_any_size_are_saved_and_loaded);
  RUN(all_ranks_or_the_first_gather_whole_tensors);
  RUN(a_run_goes_on_from_a_state_in_memory);
  RUN(values_may_be_64_lists_deep);
  RUN(mistakes_are_named);
  return harness_result();
}
