// What a plan comes to on so many ranks.
#include "core/config/resolve.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/document.h"

namespace fsdp2::config {
namespace {

std::string world_error(Plan plan, int64_t world_size) {
  try {
    resolve_for_world(&plan, world_size);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Resolve, MicroBatchesGiveTheGlobalBatch) {
  Plan plan;
  plan.options.micro_batch = 3;
  plan.options.grad_accum = 4;
  leave_batch_to_ranks(&plan);
  EXPECT_EQ(plan.options.global_batch, 0);
  resolve_for_world(&plan, 2);
  EXPECT_EQ(plan.options.global_batch, 24);
  EXPECT_EQ(plan.origin_of("global-batch"), "micro-batch x grad-accum x ranks");
  EXPECT_EQ(world_error(plan, 2), "");  // what it came to is no second wish
  EXPECT_NE(world_error(plan, 4), "");
}

TEST(Resolve, RanksThatShareSequencesTakeOneMicroBatch) {
  Plan plan;
  plan.options.micro_batch = 3;
  plan.options.grad_accum = 4;
  plan.options.ulysses_size = 2;
  leave_batch_to_ranks(&plan);
  EXPECT_EQ(world_error(plan, 3), "--ulysses-size 2 (default) does not divide the 3 ranks");
  resolve_for_world(&plan, 4);
  EXPECT_EQ(plan.options.global_batch, 24);
  EXPECT_EQ(data_ranks(plan, 4), 2);
}

TEST(Resolve, MicroBatchesAndAGlobalBatchMustAgree) {
  Plan plan;
  plan.set("micro-batch", int64_t{2}, "a");
  check_batch(plan, 3);  // the global batch is a default
  plan.set("global-batch", int64_t{8}, "b");
  check_batch(plan, 4);
  EXPECT_THROW(check_batch(plan, 3), ConfigError);
  plan.set("global-batch", int64_t{0}, "by micro-batch");
  check_batch(plan, 3);
}

TEST(Resolve, Fp16ThatDevicesChooseScalesTheLossUnlessSomebodySaysOtherwise) {
  const auto scale_of = [](const std::string& text, const std::string& dtype) {
    // As a program takes it from what fsdp2 train --print-config and fsdp2_config_lower print.
    const std::string printed = plan_of(read_yaml(text, "f.yaml"), "").text();
    Plan plan = plan_of(read_yaml(printed, "printed"), "");
    const bool is_scaled = settle_param_dtype(&plan, dtype);
    EXPECT_EQ(is_scaled, plan.origin_of("loss-scale") == "by param-dtype");
    EXPECT_EQ(plan.options.param_dtype, dtype);
    return plan.options.loss_scale;
  };
  EXPECT_EQ(scale_of("param_dtype: auto\n", "fp16"), 65536);
  EXPECT_EQ(scale_of("param_dtype: auto\n", "bf16"), 0);
  EXPECT_EQ(scale_of("param_dtype: auto\nloss_scale: 0\n", "fp16"), 0);
  EXPECT_EQ(scale_of("param_dtype: auto\nloss_scale: 8\n", "fp16"), 8);
}

TEST(Resolve, WithoutThemTheGlobalBatchStays) {
  Plan plan;
  leave_batch_to_ranks(&plan);
  resolve_for_world(&plan, 2);
  EXPECT_EQ(plan.options.global_batch, TrainOptions().global_batch);
  EXPECT_TRUE(plan.origins.empty());
}

TEST(Resolve, WarmupRatioIsOfAllStepsRoundedUp) {
  Plan plan;
  plan.options.steps = 101;
  plan.options.warmup_ratio = 0.1;
  resolve_for_world(&plan, 1);
  EXPECT_EQ(plan.options.warmup, 11);
  EXPECT_EQ(plan.options.warmup_ratio, 0);  // which excludes a warm-up in steps
  Plan whole;
  whole.options.steps = std::numeric_limits<int64_t>::max();
  whole.options.warmup_ratio = 1;
  resolve_for_world(&whole, 1);
  EXPECT_EQ(whole.options.warmup, whole.options.steps);
}

TEST(Resolve, WhatCannotBeIsRefused) {
  Plan plan;
  plan.set("world-size", int64_t{8}, "f.yaml:2 world_size");
  EXPECT_EQ(world_error(plan, 8), "");
  EXPECT_EQ(world_error(plan, 2),
            "the configuration is for 8 ranks (f.yaml:2 world_size), and the job has 2");
  Plan both;
  both.set("micro-batch", int64_t{1}, "a");
  both.set("global-batch", int64_t{1}, "b");
  EXPECT_EQ(world_error(both, 2), "--micro-batch (a) and --global-batch (b) exclude each other");
  Plan large;
  large.options.micro_batch = 1LL << 31;
  large.options.grad_accum = 1 << 24;
  EXPECT_NE(world_error(large, 1 << 20).find("is above 2147483648 windows"), std::string::npos);
  large.options.micro_batch = std::numeric_limits<int64_t>::min();
  EXPECT_NE(world_error(large, 1 << 20).find("is below 1 window per step"), std::string::npos);
  Plan warm;
  warm.set("warmup-ratio", 1e300, "f.yaml:3 warmup_ratio");
  EXPECT_EQ(world_error(warm, 1), "--warmup-ratio (f.yaml:3 warmup_ratio) is above 1");
}

}  // namespace
}  // namespace fsdp2::config
