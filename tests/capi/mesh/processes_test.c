/* Ranks that are processes, through the C ABI: how one rank's end reaches the other. Run with a
 * scenario's name and a rank it is that rank, otherwise it starts them. */
#define _POSIX_C_SOURCE 200809L
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/capi/harness.h"
#include "tests/capi/tiny_model.h"
#include "tests/capi/wait_for_file.h"

extern char** environ;

static fsdp2_status join(const char* rendezvous, int rank, fsdp2_mesh* mesh) {
  fsdp2_mesh_options options = FSDP2_MESH_OPTIONS_INIT;
  options.rendezvous = rendezvous;
  options.rank = rank;
  options.world_size = 2;
  options.timeout_ms = 60000;
  return fsdp2_mesh_create(&options, mesh);
}

static void reduces(fsdp2_mesh mesh, int rank) {
  double value = rank + 1;
  fsdp2_mesh_info info;
  info.struct_size = (uint32_t)sizeof(info);
  EXPECT_OK(fsdp2_mesh_get_info(mesh, &info));
  EXPECT(info.backend == FSDP2_BACKEND_GLOO);
  EXPECT_OK(fsdp2_mesh_all_reduce(mesh, &value, 1, FSDP2_REDUCE_SUM));
  EXPECT(value == 3.0);
}

/* Rank 1 stays until rank 0 has been told: while the process that keeps the store stands still, who
 * leaves takes the news along. */
static void tells(fsdp2_mesh mesh, int rank) {
  const char* told = temporary_path("told");
  if (rank == 1) {
    EXPECT_OK(fsdp2_mesh_fail(mesh, "no more coffee"));
    wait_for_file(told, "rank 0 has not been told");
  } else {
    EXPECT_STATUS(fsdp2_mesh_barrier(mesh), FSDP2_E_PEER_FAILED);
    EXPECT_MESSAGE("rank 1: no more coffee");
    EXPECT_STATUS(fsdp2_mesh_barrier(mesh), FSDP2_E_PEER_FAILED);
    write_file(told, "", 0);
  }
}

static void dies(fsdp2_mesh mesh, int rank) {
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  if (rank == 1) {
    _exit(0);
  } else {
    const time_t start = time(NULL);
    const fsdp2_status status = fsdp2_mesh_barrier(mesh);
    EXPECT(status / 100 == 4);
    EXPECT(time(NULL) - start < 30); /* long before the time-out */
  }
}

/* Nothing is destroyed: the process still ends as it should. */
static void leaves_all_behind(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  shard_of(module, mesh);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT(rank == 0 || rank == 1);
  exit(harness_failures != 0);
}

static void differ_in_precision(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_model();
  fsdp2_shard shard = {0};
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(rank == 0 ? FSDP2_MATMUL_HIGHEST
                                                         : FSDP2_MATMUL_HIGH_ALWAYS));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("matmul_precision: rank 0 has highest, rank 1 has high-always");
  EXPECT_OK(fsdp2_module_destroy(module));
  EXPECT_OK(fsdp2_runtime_set_matmul_precision(FSDP2_MATMUL_HIGH_ALWAYS));
  module = tiny_model(); /* the mesh is as good as before */
  shard = shard_with(module, mesh, NULL);
  destroy_tiny(module, shard);
}

/* The same keys as TINY_CONFIG, in another order and said otherwise, but for these. */
#define SAME_CONFIG(more)                                                                 \
  "{" more                                                                                \
  "\"model_type\": \"llama\", \"num_hidden_layers\": 3, \"max_position_embeddings\": 64," \
  " \"rms_norm_eps\": 0.00001, \"vocab_size\": 32, \"hidden_size\": 16,"                  \
  " \"num_attention_heads\": 2, \"intermediate_size\": 24, \"initializer_range\": 0.2}"

static void models_are_compared_by_what_they_compute(fsdp2_mesh mesh, int rank) {
  fsdp2_shard shard = {0};
  fsdp2_module module =
      tiny_model_of(rank == 0 ? TINY_CONFIG("false") : SAME_CONFIG("\"hidden_act\": \"gelu\", "));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("hidden_act: rank 0 has silu, rank 1 has gelu");
  EXPECT_OK(fsdp2_module_destroy(module));
  module = tiny_model_of(rank == 0 ? TINY_CONFIG("false") : SAME_CONFIG(""));
  shard = shard_with(module, mesh, NULL);
  destroy_tiny(module, shard);
}

static void values_are_compared(fsdp2_mesh mesh, int rank) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_module module = {0};
  fsdp2_shard shard = {0};
  options.seed = 7 + (uint64_t)rank;
  EXPECT_OK(fsdp2_module_from_config(TINY_CONFIG("false"), &options, &module));
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("values of model.embed_tokens.weight: rank 0 has seed 7,");
  EXPECT_OK(fsdp2_module_destroy(module));
}

/* A checkpoint may give them instead. */
static void deferred_values_are_compared_as_they_are_loaded(fsdp2_mesh mesh, int rank) {
  fsdp2_module_options options = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_shard_options deferred = FSDP2_SHARD_OPTIONS_INIT;
  fsdp2_module module = {0};
  fsdp2_shard shard = {0};
  options.seed = 7 + (uint64_t)rank;
  deferred.defer_values = 1;
  EXPECT_OK(fsdp2_module_from_config(TINY_CONFIG("false"), &options, &module));
  shard = shard_with(module, mesh, &deferred);
  EXPECT_STATUS(fsdp2_shard_load_values(shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("values of model.embed_tokens.weight: rank 0 has seed 7,");
  destroy_tiny(module, shard);
}

static void copy_file(const char* from, const char* to) {
  size_t n = 0;
  char* bytes = read_file(from, &n);
  write_file(to, bytes, n);
  free(bytes);
}

static fsdp2_module exported_model(const char* path) {
  fsdp2_module module = {0};
  EXPECT_OK(fsdp2_module_from_exported(path, NULL, &module));
  return module;
}

static void scripts_are_compared_by_what_they_compute(fsdp2_mesh mesh, int rank) {
  static const char* const kScripts = "tests/parity/scripted/words.pt";
  fsdp2_shard shard = {0};
  fsdp2_module module = exported_model(rank == 0 ? kScripts : "tests/parity/scripted/dropout.pt");
  EXPECT_STATUS(fsdp2_shard_create(module, mesh, NULL, &shard), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("the ranks differ in blocks.0");
  EXPECT_OK(fsdp2_module_destroy(module));
  if (rank == 1) {
    copy_file(kScripts, temporary_path("copy.pt"));
  }
  module = exported_model(rank == 0 ? kScripts : temporary_path("copy.pt"));
  shard = shard_with(module, mesh, NULL);
  destroy_tiny(module, shard);
}

static void one_program_at_two_paths_is_the_same(fsdp2_mesh mesh, int rank) {
  static const char* const kProgram = "tests/parity/exported/llama.pt2";
  fsdp2_module module;
  fsdp2_shard shard;
  if (rank == 1) {
    copy_file(kProgram, temporary_path("copy.pt2"));
  }
  module = exported_model(rank == 0 ? kProgram : temporary_path("copy.pt2"));
  shard = shard_with(module, mesh, NULL);
  destroy_tiny(module, shard);
}

static const struct {
  const char* name;
  void (*body)(fsdp2_mesh mesh, int rank);
} kScenarios[] = {
    {"reduces", reduces},
    {"tells", tells},
    {"dies", dies},
    {"leaves_all_behind", leaves_all_behind},
    {"differ_in_precision", differ_in_precision},
    {"models_are_compared_by_what_they_compute", models_are_compared_by_what_they_compute},
    {"values_are_compared", values_are_compared},
    {"deferred_values_are_compared_as_they_are_loaded",
     deferred_values_are_compared_as_they_are_loaded},
    {"scripts_are_compared_by_what_they_compute", scripts_are_compared_by_what_they_compute},
    {"one_program_at_two_paths_is_the_same", one_program_at_two_paths_is_the_same},
};

static int run_as_rank(const char* scenario, int rank) {
  char rendezvous[1100];
  fsdp2_mesh mesh = {0};
  size_t i;
  snprintf(rendezvous, sizeof(rendezvous), "file://%s", temporary_path(scenario));
  EXPECT_OK(join(rendezvous, rank, &mesh));
  for (i = 0; i < sizeof(kScenarios) / sizeof(kScenarios[0]); ++i) {
    if (strcmp(kScenarios[i].name, scenario) == 0) {
      kScenarios[i].body(mesh, rank);
    }
  }
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  EXPECT(fsdp2_live_handles() == 0);
  return harness_result();
}

int main(int argc, char** argv) {
  size_t i;
  int rank;
  if (argc == 3) {
    return run_as_rank(argv[1], atoi(argv[2]));
  }
  for (i = 0; i < sizeof(kScenarios) / sizeof(kScenarios[0]); ++i) {
    pid_t pids[2];
    for (rank = 0; rank < 2; ++rank) {
      char number[2] = {(char)('0' + rank), '\0'};
      char* arguments[4];
      arguments[0] = argv[0];
      arguments[1] = (char*)kScenarios[i].name;
      arguments[2] = number;
      arguments[3] = NULL;
      EXPECT(posix_spawn(&pids[rank], argv[0], NULL, NULL, arguments, environ) == 0);
    }
    for (rank = 0; rank < 2; ++rank) {
      int status = -1;
      fprintf(stderr, "[ run ] %s, rank %d\n", kScenarios[i].name, rank);
      EXPECT(waitpid(pids[rank], &status, 0) == pids[rank]);
      EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }
  return harness_result();
}
