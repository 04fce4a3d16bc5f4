/* Configurations of other trainers, lowered to plans that a program takes its options from. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "tests/capi/ranks.h"

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

int main(void) {
  RUN(a_file_of_roll_becomes_values);
  RUN(what_is_wrong_is_told_with_its_place);
  RUN(ranks_with_different_plans_are_told_the_key);
  RUN(a_plan_trains_to_the_golden_losses);
  return harness_result();
}
