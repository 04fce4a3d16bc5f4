/* Configurations of other trainers, lowered to plans that a program takes its options from. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "tests/capi/ranks.h"
#include "tests/support/comma_locale.h"

enum { kRoomForPlan = 1 << 16 };

static const char kYaml[] =
    "actor_train:\n"
    "  model_args: {model_name_or_path: tests/parity/golden/models/tiny-llama}\n"
    "  training_args: {learning_rate: 3.0e-3, weight_decay: 0.1, adam_beta2: 0.95, max_steps: 3,\n"
    "                  per_device_train_batch_size: 2, gradient_accumulation_steps: 1}\n"
    "  strategy_args: {strategy_config: {reshard_after_forward: true}}\n"
    "rollout_batch_size: 8\n";

static const char* value_of(const char* plan, const char* key) {
  static char value[256];
  size_t needed = 0;
  value[0] = '\0';
  EXPECT_OK(fsdp2_config_get_value(plan, key, value, sizeof(value), &needed));
  EXPECT(needed == strlen(value) + 1);
  return value;
}

static void a_file_of_roll_becomes_values(void) {
  static char plan[kRoomForPlan], again[kRoomForPlan];
  const char* const sets[1] = {"actor_train.training_args.learning_rate=1.0e-4"};
  size_t needed = 0;
  EXPECT_OK(fsdp2_config_lower(kYaml, "run.yaml", NULL, sets, 1, 4, plan, sizeof(plan), &needed));
  EXPECT(strcmp(value_of(plan, "lr"), "0.0001") == 0);
  EXPECT(strcmp(value_of(plan, "beta2"), "0.95") == 0);
  EXPECT(strcmp(value_of(plan, "reshard-after-forward"), "true") == 0);
  EXPECT(strcmp(value_of(plan, "global_batch"), "8") == 0); /* 2 windows on each of 4 ranks */
  EXPECT(strcmp(value_of(plan, "tokens"), "") == 0);
  EXPECT(strstr(plan, "# run.yaml:3 actor_train.training_args.max_steps\n") != NULL);
  EXPECT(strstr(plan, "# --set actor_train.training_args.learning_rate=1.0e-4") != NULL);
  EXPECT(strstr(plan, "\n# ignored: rollout_batch_size") != NULL);
  EXPECT_OK(fsdp2_config_lower(plan, NULL, "", NULL, 0, 0, again, sizeof(again), &needed));
  EXPECT(strcmp(value_of(again, "lr"), "0.0001") == 0);
  EXPECT_OK(fsdp2_config_lower(plan, NULL, NULL, NULL, 0, 4, again, sizeof(again), &needed));
  EXPECT(strcmp(value_of(again, "global_batch"), "8") == 0);
}

static void what_is_wrong_is_told_with_its_place(void) {
  static char plan[kRoomForPlan];
  size_t needed = 0;
  EXPECT_STATUS(
      fsdp2_config_lower("steps: 2\nlrr: 1\n", NULL, NULL, NULL, 0, 0, plan, sizeof(plan), &needed),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("config:2: unknown key lrr; did you mean lr?");
  EXPECT_STATUS(
      fsdp2_config_lower(kYaml, "run.yaml", "critic", NULL, 0, 0, plan, sizeof(plan), &needed),
      FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("there is no role critic; the roles are actor_train");
  EXPECT_STATUS(fsdp2_config_lower("world_size: 2\n", "run.yaml", NULL, NULL, 0, 4, plan,
                                   sizeof(plan), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("the configuration is for 2 ranks (run.yaml:1 world_size)");
  EXPECT_STATUS(fsdp2_config_get_value("lr: 1\n", "lrr", plan, sizeof(plan), &needed),
                FSDP2_E_NOT_FOUND);
  EXPECT_MESSAGE("there is no lrr; did you mean lr?");
  EXPECT_STATUS(fsdp2_config_get_value("lr: [", "lr", plan, sizeof(plan), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_config_lower("lr: 1\n", NULL, NULL, NULL, 0, -1, plan, sizeof(plan), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_config_lower("lr: 1\n", NULL, NULL, NULL, 0, 0, plan, 8, &needed),
                FSDP2_E_BUFFER_TOO_SMALL);
}

static void compare_plans(fsdp2_mesh mesh, int rank) {
  char plan[kRoomForPlan], shared[kRoomForPlan];
  size_t needed = 0;
  EXPECT_OK(fsdp2_config_lower(rank == 0 ? "lr: 1.0e-3" : "\nlr: 2.0e-3", "run.yaml", NULL, NULL, 0,
                               2, plan, sizeof(plan), &needed));
  EXPECT_OK(fsdp2_config_get_shared(plan, shared, sizeof(shared), &needed));
  EXPECT_STATUS(fsdp2_mesh_agree(mesh, "options", shared), FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("options: the ranks differ in --lr: rank 0 has 0.001 (");
}
static void ranks_with_different_plans_are_told_the_key(void) {
  on_ranks("config", 2, 0, compare_plans);
}

/* A trainer that takes everything from the file, in the way of examples/c/train.c. */
static void a_plan_trains_to_the_golden_losses(void) {
  static char plan[kRoomForPlan];
  size_t needed = 0;
  int i;
  struct job job = {0};
  fsdp2_module_options module = FSDP2_MODULE_OPTIONS_INIT;
  fsdp2_adamw_options adamw = FSDP2_ADAMW_OPTIONS_INIT;
  EXPECT_OK(fsdp2_config_lower(kYaml, "run.yaml", NULL, NULL, 0, 1, plan, sizeof(plan), &needed));
  job.mesh = lone_mesh();
  EXPECT_OK(fsdp2_module_from_pretrained(value_of(plan, "model"), &module, &job.module));
  job.shard = shard_of(job.module, job.mesh);
  adamw.lr = atof(value_of(plan, "lr"));
  adamw.beta2 = atof(value_of(plan, "beta2"));
  adamw.weight_decay = atof(value_of(plan, "weight_decay"));
  EXPECT_OK(fsdp2_optimizer_create_adamw(job.shard, &adamw, &job.optimizer));
  job.loader = golden_loader(job.mesh);
  EXPECT_OK(fsdp2_step_create(job.shard, job.optimizer, NULL, &job.step));
  for (i = 0; i < atoi(value_of(plan, "steps")); ++i) {
    EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[i], 5e-6);
  }
  end_lone_job(&job);
}

/* ---- objects of a plan */

static void golden_plan_with(const char* set, char* plan) {
  const char kPlain[] =
      "model: " TINY_LLAMA "\ntokens: " TINY_LLAMA_TOKENS "\nthreads: 1\nkeep_memory: false\n";
  size_t needed = 0;
  EXPECT_OK(fsdp2_config_lower(kPlain, NULL, NULL, &set, set == NULL ? 0 : 1, 0, plan, kRoomForPlan,
                               &needed));
}
static void golden_plan(char* plan) { golden_plan_with(NULL, plan); }

/* Everything is the plan's but the job, whose ranks are threads, and, by turns, the optimizer. */
static void train_by_plan(fsdp2_mesh ranks, int has_own_optimizer) {
  char plan[kRoomForPlan];
  struct job job = {0};
  int i;
  golden_plan(plan);
  EXPECT_OK(fsdp2_config_make_mesh(plan, ranks, &job.mesh));
  EXPECT_OK(fsdp2_config_make_module(plan, &job.module));
  EXPECT_OK(fsdp2_config_make_loader(plan, job.module, job.mesh, &job.loader));
  EXPECT_OK(fsdp2_config_make_shard(plan, job.module, job.mesh, &job.shard));
  EXPECT_OK(fsdp2_shard_load_values(job.shard));
  if (has_own_optimizer) {
    job.optimizer = golden_adamw(job.shard);
  } else {
    EXPECT_OK(fsdp2_config_make_optimizer(plan, job.shard, &job.optimizer));
  }
  EXPECT_OK(fsdp2_config_make_step(plan, job.shard, job.optimizer, &job.step));
  for (i = 0; i < 3; ++i) {
    EXPECT_NEAR(take_step(job.loader, job.step).loss, kGoldenLoss[i], 5e-6);
  }
  end_lone_job(&job);
}
static void train_rank_by_plan(fsdp2_mesh mesh, int rank) {
  (void)rank;
  train_by_plan(mesh, 0);
  train_by_plan(mesh, 1);
}
static void objects_of_a_plan_train_to_the_golden_losses_on_any_ranks(void) {
  on_ranks("objects_1", 1, 0, train_rank_by_plan);
  on_ranks("objects_2", 2, 0, train_rank_by_plan);
}

static int32_t reshards_by_plan(fsdp2_mesh mesh, const char* budget) {
  char plan[kRoomForPlan];
  fsdp2_unit_settings settings = {.struct_size = (uint32_t)sizeof(settings)};
  struct job job = {0};
  golden_plan_with(budget, plan);
  EXPECT_OK(fsdp2_config_make_module(plan, &job.module));
  EXPECT_OK(fsdp2_config_make_shard(plan, job.module, mesh, &job.shard));
  EXPECT_OK(fsdp2_shard_get_unit_settings(job.shard, "model.layers.0", &settings));
  EXPECT_OK(fsdp2_shard_destroy(job.shard));
  EXPECT_OK(fsdp2_module_destroy(job.module));
  return settings.reshard_after_forward;
}
static void shard_within_a_budget(fsdp2_mesh mesh, int rank) {
  char plan[kRoomForPlan];
  const fsdp2_module module = tiny_llama();
  fsdp2_shard shard = {0};
  (void)rank;
  EXPECT(reshards_by_plan(mesh, NULL) == FSDP2_RESHARD_AUTO);
  EXPECT(reshards_by_plan(mesh, "reshard_budget_gb=1.0") == FSDP2_RESHARD_NEVER);
  golden_plan_with("reshard_budget_gb=1.0e-6", plan);
  EXPECT_STATUS(fsdp2_config_make_shard(plan, module, mesh, &shard), FSDP2_E_OUT_OF_MEMORY);
  EXPECT_MESSAGE("--reshard-budget-gb: ");
  EXPECT(shard.id == 0);
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  EXPECT_OK(fsdp2_module_destroy(module));
}
static void a_plan_keeps_gathered_what_its_budget_lets_it(void) {
  on_ranks("budget", 2, 0, shard_within_a_budget);
}

/* Also the model's config.json and the plan's text. */
static void a_host_that_writes_commas_trains_to_the_golden_losses(void) {
  if (EXPECT(set_comma_locale(temporary_path("")))) {
    on_ranks("commas", 1, 0, train_rank_by_plan);
  }
  setlocale(LC_NUMERIC, "C");
}

static void a_plan_sets_up_its_process_and_joins_the_job_of_the_environment(void) {
  static char plan[kRoomForPlan];
  fsdp2_mesh_info info = {.struct_size = (uint32_t)sizeof(info)};
  fsdp2_mesh job = {0};
  golden_plan(plan);
  EXPECT_OK(fsdp2_config_set_up_process(plan));
  EXPECT_OK(fsdp2_config_join_job(plan, &job));
  EXPECT_OK(fsdp2_mesh_get_info(job, &info));
  EXPECT(info.world_size == 1 && info.n_dims == 1);
  EXPECT_OK(fsdp2_mesh_destroy(job));
}

static void epochs_become_steps_of_the_data(void) {
  static char plan[kRoomForPlan];
  const char kEpochs[] = "epochs: 3\nwarmup_ratio: 0.5\n";
  struct job job = start_lone_job();
  fsdp2_step step = {0};
  size_t needed = 0;
  EXPECT_STATUS(fsdp2_config_make_step(kEpochs, job.shard, job.optimizer, &step),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_MESSAGE("--epochs (plan:1 epochs): expected steps");
  EXPECT(step.id == 0);
  EXPECT_OK(fsdp2_config_settle_epochs(kEpochs, 4, plan, sizeof(plan), &needed));
  EXPECT(strcmp(value_of(plan, "steps"), "12") == 0);
  EXPECT(strcmp(value_of(plan, "epochs"), "0") == 0);
  EXPECT(strcmp(value_of(plan, "warmup"), "6") == 0);
  EXPECT_OK(fsdp2_config_make_step(plan, job.shard, job.optimizer, &step));
  EXPECT_OK(fsdp2_step_destroy(step));
  EXPECT_STATUS(fsdp2_config_settle_epochs(kEpochs, 0, plan, sizeof(plan), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  EXPECT_STATUS(fsdp2_config_settle_epochs(kEpochs, INT64_MAX / 2, plan, sizeof(plan), &needed),
                FSDP2_E_INVALID_ARGUMENT);
  end_lone_job(&job);
}

enum maker { kModule, kLoader, kShard, kOptimizer, kStep, kMesh, kMakers };

/* What is made is destroyed again. */
static fsdp2_status make(enum maker maker, const char* plan, const struct job* job) {
  struct job made = {0};
  fsdp2_module loose = {0};
  fsdp2_status status = FSDP2_OK;
  switch (maker) {
    case kModule:
      status = fsdp2_config_make_module(plan, &made.module);
      break;
    case kLoader:
      status = fsdp2_config_make_loader(plan, job->module, job->mesh, &made.loader);
      break;
    case kShard:
      loose = tiny_llama();
      status = fsdp2_config_make_shard(plan, loose, job->mesh, &made.shard);
      break;
    case kOptimizer:
      status = fsdp2_config_make_optimizer(plan, job->shard, &made.optimizer);
      break;
    case kStep:
      status = fsdp2_config_make_step(plan, job->shard, job->optimizer, &made.step);
      break;
    default:
      status = fsdp2_config_make_mesh(plan, job->mesh, &made.mesh);
  }
  fsdp2_step_destroy(made.step), fsdp2_loader_destroy(made.loader);
  fsdp2_optimizer_destroy(made.optimizer), fsdp2_shard_destroy(made.shard);
  fsdp2_module_destroy(made.module), fsdp2_module_destroy(loose), fsdp2_mesh_destroy(made.mesh);
  return status;
}

static void a_bad_plan_is_refused_with_the_name_of_its_key(void) {
  static const struct {
    enum maker maker;
    const char* plan;
    const char* message;
  } kBad[] = {
      {kModule, "steps: 3", "--model (a directory"},
      {kModule, "model: a\nmodel_config: b", "--model and --model-config exclude each other"},
      {kModule, "model_config: nowhere/config.json", "--model-config nowhere/config.json: No such"},
      {kModule, "model: " TINY_LLAMA "\nfreeze: nothing", "--freeze"},
      {kModule, "model: " TINY_LLAMA "\nrecompute: A", "--recompute needs --activation-checkpoint"},
      {kModule, "model: " TINY_LLAMA "\nconfig_overrides: '{\"layers\": 1}'",
       "--config-overrides (plan:2 config_overrides): "},
      {kModule, "dtype: int", "dtype"},
      {kLoader, "steps: 3", "--tokens, --text or --records"},
      {kLoader, "tokens: a\ntext: b", "--tokens and --text exclude each other"},
      {kLoader, "tokens: " TINY_LLAMA_TOKENS "\nseq_len: 100000", "--seq-len 100000 is beyond"},
      {kLoader, "tokens: " TINY_LLAMA_TOKENS "\nglobal_batch: 3\ngrad_accum: 2",
       "--global-batch 3 is not a multiple of"},
      {kLoader, "tokens: " TINY_LLAMA_TOKENS "\ngrad_accum: 4294967297", "--grad-accum 4294967297"},
      {kLoader, "tokens: a,b\ndata_weights: '1'", "--data-weights: expected one number for each"},
      {kShard, "strategy: none", "strategy"},
      {kShard, "reshard_after_forward: 7", "--reshard-after-forward"},
      {kShard, "wrap_names: 'a.{*}'", "--wrap-names"},
      {kShard, "reshard_budget_gb: 1.0", "--model (a directory"},
      {kShard, "model: " TINY_LLAMA "\nreshard_budget_gb: 1.0\npregather: true",
       "--reshard-budget-gb and --pregather exclude each other"},
      {kShard, "model: m.pt2\nreshard_budget_gb: 1.0", "--reshard-budget-gb: --model m.pt2 is a"},
      {kOptimizer, "lr: .nan", "lr"},
      {kOptimizer, "lr: -1.0", "--lr must be a number of at least 0 (--lr is plan:1 lr)"},
      {kOptimizer, "no_decay: all", "--no-decay all: expected norm, bias"},
      {kOptimizer, "lr_plan: 'nothing=2'", "--lr-plan nothing: matches the name of no parameter"},
      {kOptimizer, "lr_plan: '(=2'", "--lr-plan"},
      {kStep, "grad_accum: 0", "--grad-accum 0 is below 1"},
      {kStep, "max_skips_in_row: 99999999999", "--max-skips-in-row 99999999999 is above"},
      {kStep, "warmup: 3\nwarmup_ratio: 0.1", "--warmup and --warmup-ratio exclude each other"},
      {kStep, "update_in_backward: true\nclip: 1",
       "--update-in-backward and --clip exclude each other"},
      {kStep, "update_in_backward: true\nloss_scale: 65536",
       "--update-in-backward and --loss-scale exclude each other"},
      {kStep, "update_in_backward: true\nnot_finite: skip",
       "--update-in-backward and --not-finite skip exclude each other"},
      {kStep, "update_in_backward: true\ncuda_graph: true",
       "--update-in-backward and --cuda-graph exclude each other"},
      {kMesh, "world_size: 3", "the configuration is for 3 ranks (plan:1 world_size)"},
      {kMesh, "ulysses_size: 2", "--ulysses-size 2 does not divide the 1 ranks"},
      {kMesh, "strategy: hybrid_shard", "--strategy hybrid_shard needs --fsdp-size"},
      {kMesh, "timeout_s: 0.0", "--timeout-s must be more than 0"},
  };
  struct job job = start_lone_job();
  size_t i;
  int maker;
  for (i = 0; i < sizeof(kBad) / sizeof(kBad[0]); ++i) {
    const fsdp2_status expected =
        strstr(kBad[i].plan, "nowhere") != NULL ? FSDP2_E_IO : FSDP2_E_INVALID_ARGUMENT;
    if (!EXPECT_STATUS(make(kBad[i].maker, kBad[i].plan, &job), expected)) {
      fprintf(stderr, "  plan: %s\n", kBad[i].plan);
    }
    EXPECT_MESSAGE(kBad[i].message);
  }
  for (maker = 0; maker < kMakers; ++maker) {
    EXPECT_STATUS(make((enum maker)maker, "lr: [", &job), FSDP2_E_INVALID_ARGUMENT);
    EXPECT_STATUS(make((enum maker)maker, "lrr: 1", &job), FSDP2_E_INVALID_ARGUMENT);
    EXPECT_MESSAGE("plan:1: unknown key lrr; did you mean lr?");
    EXPECT_STATUS(make((enum maker)maker, NULL, &job), FSDP2_E_NULL_ARGUMENT);
  }
  end_lone_job(&job);
}

/* Rank 1 is wrong first; then both are right, on the same mesh. */
static void find_a_plan_that_is_wrong_on_one_rank(fsdp2_mesh mesh, int rank) {
  struct job job = start_job(mesh);
  char good[kRoomForPlan];
  int maker, right;
  golden_plan(good);
  for (maker = 0; maker < kMakers; ++maker) {
    if (maker == kModule || maker == kOptimizer) {
      continue; /* not collective */
    }
    for (right = 0; right < 2; ++right) {
      const fsdp2_status wrong = rank == 1 ? FSDP2_E_INVALID_ARGUMENT : FSDP2_E_PEER_FAILED;
      EXPECT_STATUS(make((enum maker)maker, rank == 1 && !right ? "lrr: 1" : good, &job),
                    right ? FSDP2_OK : wrong);
      if (!right) {
        EXPECT_MESSAGE("unknown key lrr; did you mean lr?");
      }
    }
  }
  EXPECT_OK(fsdp2_mesh_barrier(mesh));
  end_job(&job);
}
static void a_plan_that_is_wrong_on_one_rank_is_told_to_all_at_once(void) {
  on_ranks("wrong_plan", 2, 0, find_a_plan_that_is_wrong_on_one_rank);
}

int main(void) {
  RUN(a_file_of_roll_becomes_values);
  RUN(what_is_wrong_is_told_with_its_place);
  RUN(ranks_with_different_plans_are_told_the_key);
  RUN(a_plan_trains_to_the_golden_losses);
  RUN(objects_of_a_plan_train_to_the_golden_losses_on_any_ranks);
  RUN(a_plan_sets_up_its_process_and_joins_the_job_of_the_environment);
  RUN(a_host_that_writes_commas_trains_to_the_golden_losses);
  RUN(a_plan_keeps_gathered_what_its_budget_lets_it);
  RUN(epochs_become_steps_of_the_data);
  RUN(a_plan_that_is_wrong_on_one_rank_is_told_to_all_at_once);
  RUN(a_bad_plan_is_refused_with_the_name_of_its_key);
  return harness_result();
}
