/* Checkpoints through the C ABI, on one rank and on several that are threads. */
#define _POSIX_C_SOURCE 200809L
#include <unistd.h>

#include "tests/capi/harness.h"
#include "tests/capi/ranks.h"

static void save(const struct job* job, const char* name, int background) {
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  options.background = background;
  EXPECT_OK(fsdp2_checkpoint_save(job->shard, job->optimizer, job->step, job->loader,
                                  temporary_path(name), &options));
}

static void load(const struct job* job, const char* name) {
  EXPECT_OK(fsdp2_checkpoint_load(job->shard, job->optimizer, job->step, job->loader,
                                  temporary_path(name), NULL));
}

static void a_run_goes_on_from_a_checkpoint_to_the_bit(void) {
  int background;
  for (background = 0; background < 2; ++background) {
    struct job job = start_lone_job();
    double expected[2];
    int32_t done = 0;
    int64_t position = -1;
    int i;
    EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[0], 5e-6);
    save(&job, "run", background);
    for (i = 0; i < 2; ++i) {
      expected[i] = take_step(job.loader, job.step).loss;
    }
    EXPECT_OK(fsdp2_checkpoint_wait(job.shard));
    EXPECT_OK(fsdp2_checkpoint_poll(job.shard, &done));
    EXPECT(done == 1);
    end_lone_job(&job);

    job = start_lone_job();
    load(&job, "run");
    EXPECT_OK(fsdp2_loader_get_position(job.loader, &position));
    EXPECT(position == 1);
    for (i = 0; i < 2; ++i) {
      const fsdp2_step_result result = take_step(job.loader, job.step);
      EXPECT(result.step == i + 1);
      EXPECT(result.loss == expected[i]);
    }
    end_lone_job(&job);
  }
}

static void the_report_tells_step_and_names(void) {
  struct job job = start_lone_job();
  fsdp2_load_options options = FSDP2_LOAD_OPTIONS_INIT;
  char report[512];
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_checkpoint_get_report(job.shard, report, sizeof(report), &needed),
                FSDP2_E_WRONG_STATE);
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, (fsdp2_optimizer){0}, job.step, (fsdp2_loader){0},
                                  temporary_path("model"), NULL));
  EXPECT_STATUS(fsdp2_checkpoint_load(job.shard, job.optimizer, (fsdp2_step){0}, (fsdp2_loader){0},
                                      temporary_path("model"), NULL),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("optim.state.model.embed_tokens.weight.step");
  options.partial = 1;
  EXPECT_OK(fsdp2_checkpoint_load(job.shard, job.optimizer, (fsdp2_step){0}, (fsdp2_loader){0},
                                  temporary_path("model"), &options));
  EXPECT_STATUS(fsdp2_checkpoint_get_report(job.shard, report, sizeof(report), &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
  EXPECT(needed > 512);
  EXPECT_OK(fsdp2_checkpoint_load(job.shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                  (fsdp2_loader){0}, temporary_path("model"), NULL));
  EXPECT_OK(fsdp2_checkpoint_get_report(job.shard, report, sizeof(report), &needed));
  EXPECT(strstr(report, "\"step\":0") != NULL && strstr(report, "\"missing\":[]") != NULL);
  end_lone_job(&job);
}

static void a_load_takes_the_hyper_parameters_of_the_checkpoint(void) {
  struct job job = start_lone_job();
  fsdp2_adamw_options other = FSDP2_ADAMW_OPTIONS_INIT;
  fsdp2_optimizer optimizer = {0};
  static char text[1 << 18];
  size_t needed = 0;
  other.weight_decay = 0.25;
  other.beta1 = 0.5;
  EXPECT_OK(fsdp2_optimizer_create_adamw(job.shard, &other, &optimizer));
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, optimizer, job.step, job.loader,
                                  temporary_path("other"), NULL));
  load(&job, "other");
  save(&job, "again", 0);
  EXPECT_OK(fsdp2_checkpoint_inspect(temporary_path("again"), text, sizeof(text), &needed));
  EXPECT(strstr(text, "\"optim.param_groups.0.weight_decay\",\"value\":\"0.25\"") != NULL);
  EXPECT(strstr(text, "\"optim.param_groups.0.betas\",\"value\":\"(0.5, ") != NULL);
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  end_lone_job(&job);
}

static void every_format_is_saved_inspected_verified_and_loaded(void) {
  static const char* const names[] = {"sharded", "model.safetensors", "fsdp_cpt1.pth", "directory",
                                      "per-rank"};
  struct job job = start_lone_job();
  double expected;
  int32_t format;
  take_step(job.loader, job.step);
  for (format = FSDP2_CHECKPOINT_SHARDED; format <= FSDP2_CHECKPOINT_PTH_PER_RANK; ++format) {
    fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
    options.format = format;
    EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                    temporary_path(names[format]), &options));
  }
  expected = take_step(job.loader, job.step).loss;
  end_lone_job(&job);
  for (format = FSDP2_CHECKPOINT_SHARDED; format <= FSDP2_CHECKPOINT_PTH_PER_RANK; ++format) {
    size_t needed = 0;
    EXPECT_OK(fsdp2_checkpoint_verify(temporary_path(names[format])));
    EXPECT_STATUS(fsdp2_checkpoint_inspect(temporary_path(names[format]), NULL, 0, &needed),
                  FSDP2_OK);
    EXPECT(needed > 1000);
    job = start_lone_job();
    EXPECT_OK(fsdp2_checkpoint_load(job.shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                    (fsdp2_loader){0}, temporary_path(names[format]), NULL));
    EXPECT_OK(fsdp2_loader_set_position(job.loader, 1));
    EXPECT(take_step(job.loader, job.step).loss == expected);
    end_lone_job(&job);
  }
}

static void formats_are_converted_into_each_other(void) {
  struct job job = start_lone_job();
  fsdp2_convert_options options = FSDP2_CONVERT_OPTIONS_INIT;
  double expected[2];
  int i;
  take_step(job.loader, job.step);
  save(&job, "dcp", 0);
  for (i = 0; i < 2; ++i) {
    expected[i] = take_step(job.loader, job.step).loss;
  }
  end_lone_job(&job);
  options.format = FSDP2_CHECKPOINT_PTH;
  EXPECT_OK(fsdp2_checkpoint_convert(temporary_path("dcp"), temporary_path("all.pth"), &options));
  options.format = FSDP2_CHECKPOINT_PTH_PER_RANK;
  options.ranks = 3;
  EXPECT_OK(fsdp2_checkpoint_convert(temporary_path("all.pth"), temporary_path("three"), &options));
  options.format = FSDP2_CHECKPOINT_SHARDED;
  EXPECT_OK(fsdp2_checkpoint_convert(temporary_path("three"), temporary_path("back"), &options));
  job = start_lone_job();
  load(&job, "back");
  for (i = 0; i < 2; ++i) {
    EXPECT(take_step(job.loader, job.step).loss == expected[i]);
  }
  end_lone_job(&job);
  options.format = FSDP2_CHECKPOINT_MODEL_DIRECTORY;
  EXPECT_STATUS(fsdp2_checkpoint_convert(temporary_path("dcp"), temporary_path("hf"), &options),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("config.json");
  options.config_path = TINY_LLAMA "/config.json";
  options.max_file_bytes = 100000;
  EXPECT_OK(fsdp2_checkpoint_convert(temporary_path("dcp"), temporary_path("hf"), &options));
  EXPECT(access(temporary_path("hf/model.safetensors.index.json"), R_OK) == 0);
  {
    fsdp2_module module = {0};
    EXPECT_OK(fsdp2_module_from_pretrained(temporary_path("hf"), NULL, &module));
    EXPECT_OK(fsdp2_module_destroy(module));
  }
}

static void an_export_in_bf16_says_so_in_config_and_weights(void) {
  static char text[1 << 16];
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  FILE* config;
  size_t needed = 0;
  options.format = FSDP2_CHECKPOINT_MODEL_DIRECTORY;
  options.dtype = FSDP2_DTYPE_BF16;
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                  (fsdp2_loader){0}, temporary_path("bf16"), &options));
  EXPECT_OK(fsdp2_checkpoint_inspect(temporary_path("bf16"), text, sizeof(text), &needed));
  EXPECT(strstr(text, "BFloat16") != NULL && strstr(text, "Float\"") == NULL);
  config = fopen(temporary_path("bf16/config.json"), "r");
  if (EXPECT(config != NULL)) {
    text[fread(text, 1, sizeof(text) - 1, config)] = '\0';
    EXPECT(strstr(text, "\"torch_dtype\": \"bfloat16\"") != NULL);
    fclose(config);
  }
  options.format = FSDP2_CHECKPOINT_SHARDED;
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path("x"), &options),
                FSDP2_E_UNSUPPORTED);
  EXPECT_MESSAGE("options.dtype: only full weights are written in another dtype");
  end_lone_job(&job);
}

static void what_is_there_is_replaced_unless_that_is_ruled_out(void) {
  const int32_t formats[4] = {FSDP2_CHECKPOINT_SHARDED, FSDP2_CHECKPOINT_SAFETENSORS,
                              FSDP2_CHECKPOINT_PTH, FSDP2_CHECKPOINT_MODEL_DIRECTORY};
  const char* const paths[4] = {"again/sharded", "again/model.safetensors", "again/model.pth",
                                "again/hf"};
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  int i;
  for (i = 0; i < 4; ++i) {
    const char* path = temporary_path(paths[i]);
    options.format = formats[i];
    options.no_overwrite = 1;
    EXPECT_OK(
        fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader, path, &options));
    EXPECT_STATUS(
        fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader, path, &options),
        FSDP2_E_IO);
    EXPECT_MESSAGE("already exists, and is not to be overwritten");
    options.no_overwrite = 0;
    EXPECT_OK(
        fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader, path, &options));
  }
  options.format = FSDP2_CHECKPOINT_PTH_PER_RANK;
  options.no_overwrite = 1;
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path("again/ranks"), &options),
                FSDP2_E_UNSUPPORTED);
  end_lone_job(&job);
}

static void what_is_in_the_way_can_be_asked_for(void) {
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  EXPECT_OK(fsdp2_checkpoint_check_path(temporary_path("way/step-00000001"), NULL));
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path("way/step-00000001"), NULL));
  EXPECT_OK(fsdp2_checkpoint_check_path(temporary_path("way/step-00000001"), NULL));
  options.no_overwrite = 1;
  EXPECT_STATUS(fsdp2_checkpoint_check_path(temporary_path("way/step-00000001"), &options),
                FSDP2_E_IO);
  EXPECT_STATUS(fsdp2_checkpoint_check_path(temporary_path("way"), NULL), FSDP2_E_IO);
  EXPECT_MESSAGE("has step-00000001 in it");
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path("way"), NULL),
                FSDP2_E_IO);
  EXPECT_MESSAGE("has step-00000001 in it");
  options.no_overwrite = 0;
  options.format = FSDP2_CHECKPOINT_SAFETENSORS;
  EXPECT_STATUS(fsdp2_checkpoint_check_path(temporary_path("way"), &options), FSDP2_E_IO);
  EXPECT_MESSAGE("is a directory");
  options.format = FSDP2_CHECKPOINT_MODEL_DIRECTORY; /* keeps what is there */
  EXPECT_OK(fsdp2_checkpoint_check_path(temporary_path("way"), &options));
  end_lone_job(&job);
}

static void full_weights_replace_no_part_of_a_checkpoint_and_no_other_file(void) {
  const char* const refused[2] = {"parts/fsdp_sharded_cpt0_rank0.pth", "tokens.bin"};
  const char* const why[2] = {"is a part of", "is neither a file of torch.save nor safetensors"};
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  FILE* tokens = fopen(temporary_path("tokens.bin"), "w");
  int i;
  if (EXPECT(tokens != NULL)) {
    fputs("tokens", tokens);
    fclose(tokens);
  }
  options.format = FSDP2_CHECKPOINT_PTH_PER_RANK;
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                  (fsdp2_loader){0}, temporary_path("parts"), &options));
  options.format = FSDP2_CHECKPOINT_PTH;
  for (i = 0; i < 2; ++i) {
    const char* path = temporary_path(refused[i]);
    EXPECT_STATUS(fsdp2_checkpoint_save_full(job.shard, path), FSDP2_E_IO);
    EXPECT_MESSAGE(why[i]);
    EXPECT_STATUS(
        fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader, path, &options),
        FSDP2_E_IO);
    EXPECT_STATUS(fsdp2_checkpoint_check_path(path, &options), FSDP2_E_IO);
    EXPECT_MESSAGE(why[i]);
  }
  EXPECT_OK(fsdp2_checkpoint_verify(temporary_path("parts")));
  end_lone_job(&job);
}

static void the_newest_of_a_series_is_found(void) {
  struct job job = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  char found[512];
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_checkpoint_find(temporary_path("series"), found, sizeof(found), &needed),
                FSDP2_E_NOT_FOUND);
  options.keep_last = 1;
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path("series/step-00000001"), &options));
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path("series/step-00000002"), &options));
  EXPECT_OK(fsdp2_checkpoint_find(temporary_path("series"), found, sizeof(found), &needed));
  EXPECT(strcmp(found, temporary_path("series/step-00000002")) == 0);
  EXPECT(access(temporary_path("series/step-00000001"), F_OK) != 0);
  load(&job, "series");
  end_lone_job(&job);
}

static void memory_for_saves_is_made_once_and_ahead(void) {
  struct job job = start_lone_job();
  double expected;
  EXPECT_OK(fsdp2_checkpoint_prepare(job.shard, (fsdp2_optimizer){0}, (fsdp2_step){0},
                                     (fsdp2_loader){0}));
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_checkpoint_prepare(job.shard, job.optimizer, job.step, job.loader));
  EXPECT_OK(fsdp2_checkpoint_prepare(job.shard, job.optimizer, job.step, job.loader));
  save(&job, "prepared", 1);
  EXPECT_OK(fsdp2_checkpoint_prepare(job.shard, job.optimizer, job.step, job.loader));
  expected = take_step(job.loader, job.step).loss;
  EXPECT_OK(fsdp2_checkpoint_wait(job.shard));
  end_lone_job(&job);
  job = start_lone_job();
  load(&job, "prepared");
  EXPECT(take_step(job.loader, job.step).loss == expected);
  end_lone_job(&job);
}

static void misuse_is_told(void) {
  struct job job = start_lone_job();
  struct job other = start_lone_job();
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, other.optimizer, job.step, job.loader,
                                      temporary_path("x"), NULL),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_checkpoint_load(job.shard, job.optimizer, other.step, job.loader,
                                      temporary_path("x"), NULL),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_checkpoint_prepare(job.shard, other.optimizer, job.step, job.loader),
                FSDP2_E_INVALID_ARGUMENT);
  options.format = FSDP2_CHECKPOINT_PTH;
  options.background = 1;
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path("x"), &options),
                FSDP2_E_UNSUPPORTED);
  options.background = 2;
  EXPECT_STATUS(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path("x"), &options),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_checkpoint_inspect(temporary_path("nothing"), NULL, 0, &needed),
                FSDP2_E_NOT_FOUND);
  EXPECT_STATUS(fsdp2_checkpoint_verify(TINY_LLAMA_TOKENS), FSDP2_E_UNSUPPORTED);
  EXPECT_STATUS(fsdp2_checkpoint_rebuild_manifest(temporary_path("nothing")), FSDP2_E_NOT_FOUND);
  end_lone_job(&other);
  end_lone_job(&job);
}

/* A run of four ranks, two replicas, that is saved and goes on with three. */
static void save_on_rank(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_optimizer optimizer = golden_adamw(shard);
  fsdp2_save_options options = FSDP2_SAVE_OPTIONS_INIT;
  options.background = rank >= 0;
  if (rank % 2 == 0) {
    EXPECT_OK(fsdp2_checkpoint_prepare(shard, optimizer, (fsdp2_step){0}, (fsdp2_loader){0}));
  }
  EXPECT_OK(fsdp2_checkpoint_save(shard, optimizer, (fsdp2_step){0}, (fsdp2_loader){0},
                                  temporary_path("ranks"), &options));
  /* Destroying waits for it. */
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void load_on_rank(fsdp2_mesh mesh, int rank) {
  fsdp2_module module = tiny_llama();
  fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_optimizer optimizer = golden_adamw(shard);
  EXPECT(rank < 3);
  EXPECT_OK(fsdp2_checkpoint_load(shard, optimizer, (fsdp2_step){0}, (fsdp2_loader){0},
                                  temporary_path("ranks"), NULL));
  EXPECT_OK(fsdp2_optimizer_destroy(optimizer));
  EXPECT_OK(fsdp2_shard_destroy(shard));
  EXPECT_OK(fsdp2_module_destroy(module));
}

static void four_ranks_save_and_three_load(void) {
  on_ranks("checkpoint-save", 4, 2, save_on_rank);
  on_ranks("checkpoint-load", 3, 0, load_on_rank);
}

/* Rank 0 alone sees the files: a local disk, say. */
static void load_from_rank_0(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  fsdp2_load_options options = FSDP2_LOAD_OPTIONS_INIT;
  double expected;
  take_step(job.loader, job.step);
  EXPECT_OK(fsdp2_checkpoint_save(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path("first"), NULL));
  expected = take_step(job.loader, job.step).loss;
  options.from_rank0 = 1;
  EXPECT_OK(fsdp2_checkpoint_load(job.shard, job.optimizer, job.step, job.loader,
                                  temporary_path(rank == 0 ? "first" : "elsewhere"), &options));
  EXPECT(take_step(job.loader, job.step).loss == expected);
  EXPECT_STATUS(fsdp2_checkpoint_load(job.shard, job.optimizer, job.step, job.loader,
                                      temporary_path(rank == 0 ? "elsewhere" : "first"), &options),
                rank == 0 ? FSDP2_E_NOT_FOUND : FSDP2_E_PEER_FAILED);
  EXPECT_MESSAGE("elsewhere");
  end_job(&job);
}

static void files_of_rank_0_are_loaded_by_all(void) {
  on_ranks("checkpoint-first", 2, 0, load_from_rank_0);
}

int main(void) {
  RUN(a_run_goes_on_from_a_checkpoint_to_the_bit);
  RUN(the_report_tells_step_and_names);
  RUN(a_load_takes_the_hyper_parameters_of_the_checkpoint);
  RUN(every_format_is_saved_inspected_verified_and_loaded);
  RUN(formats_are_converted_into_each_other);
  RUN(an_export_in_bf16_says_so_in_config_and_weights);
  RUN(what_is_there_is_replaced_unless_that_is_ruled_out);
  RUN(what_is_in_the_way_can_be_asked_for);
  RUN(full_weights_replace_no_part_of_a_checkpoint_and_no_other_file);
  RUN(the_newest_of_a_series_is_found);
  RUN(memory_for_saves_is_made_once_and_ahead);
  RUN(misuse_is_told);
  RUN(four_ranks_save_and_three_load);
  RUN(files_of_rank_0_are_loaded_by_all);
  return harness_result();
}
