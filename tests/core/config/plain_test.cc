// Files whose keys are the flags of fsdp2 train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <variant>

#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/key_table.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;

std::string file_with(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/plain.yaml";
  std::ofstream(path) << text;
  return path;
}

Plan plan_in(const std::string& text, const std::vector<std::string>& sets = {}) {
  return read_plan({file_with(text), "", sets});
}

// What is wrong, from the line number on.
std::string message_of(const std::string& text, const std::vector<std::string>& sets = {}) {
  try {
    plan_in(text, sets);
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    const std::string file = "plain.yaml:";
    const size_t at = message.find(file);
    return at == std::string::npos ? message : message.substr(at + file.size());
  }
  return "";
}

std::string with_underscores(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

TEST(PlainFile, SetsWhatItsFlagsSet) {
  const Plan plan = plan_in(
      "model: DIR\nglobal_batch: 4\ngrad-accum: 2\nlr: 1e-3\nshuffle: true\n"
      "reshard_after_forward: 2\nwrap: [A, B]\nparam_dtype: BFloat16\nsteps: ~\nseed: 7\n");
  const TrainOptions& o = plan.options;
  EXPECT_EQ(o.model, "DIR");
  EXPECT_EQ(o.global_batch, 4);
  EXPECT_EQ(o.grad_accum, 2);
  EXPECT_EQ(o.lr, 1e-3);
  EXPECT_TRUE(o.shuffle);
  EXPECT_EQ(o.reshard_after_forward, "2");
  EXPECT_EQ(o.wrap, "A,B");
  EXPECT_EQ(o.param_dtype, "bf16");
  EXPECT_EQ(o.steps, TrainOptions().steps);
  EXPECT_EQ(o.seed, 7U);
  EXPECT_THAT(plan.origin_of("lr"), HasSubstr("plain.yaml:4 lr"));
  EXPECT_EQ(plan.origin_of("steps"), "default");
}

TEST(PlainFile, AssignmentsGoBeforeIt) {
  const Plan plan = plan_in("lr: 1\nglobal_batch: 4\n", {"global-batch=2", "clip=1.5"});
  EXPECT_EQ(plan.options.lr, 1);
  EXPECT_EQ(plan.options.global_batch, 2);
  EXPECT_EQ(plan.options.clip, 1.5);
  EXPECT_EQ(plan.origin_of("clip"), "--set clip=1.5 clip");
}

TEST(PlainFile, IsWhatPrintConfigPrints) {
  const Plan plan = plan_in(
      "model: 'a: \"b\"'\nlr: 1e-3\nshuffle: true\nwrap: [A, B]\nreshard_after_forward: 2\n"
      "param_dtype: bf16\nseed: 18446744073709551615\nlr_scale: 'x.*=0.5'\n");
  const std::string printed = plan.text();
  EXPECT_THAT(printed, HasSubstr("lr: 0.001  "));
  EXPECT_THAT(printed, HasSubstr("plain.yaml:2 lr\n"));
  EXPECT_THAT(printed, HasSubstr("# default\n"));
  EXPECT_EQ(shared_text(plan_in(printed).options), shared_text(plan.options));
}

TEST(PlainFile, WhatAnAssignmentHoldsStaysInItsComment) {
  std::string long_name = "tokens=";  // of an odd length, and letters of two bytes each follow
  while (long_name.size() < 100) {
    long_name += "\u00e4";
  }
  const Plan plan = plan_in("steps: 1\n", {"model=\"a\\\n  b\"", long_name});
  EXPECT_EQ(plan.options.model, "ab");
  EXPECT_EQ(shared_text(plan_in(plan.text()).options), shared_text(plan.options));
}

TEST(PlainFile, AMisspeltKeyGivesTheOneThatWasMeant) {
  TrainOptions options;
  for (const Key& key : train_keys(&options)) {
    const std::string name = with_underscores(key.name);
    EXPECT_EQ(message_of("steps: 1\n" + name + "x: 1\n"),
              "2: unknown key " + name + "x; did you mean " + name + "?");
  }
  EXPECT_EQ(message_of("zzzzzzzzzzzz: 1\n"), "1: unknown key zzzzzzzzzzzz");
}

TEST(PlainFile, AWrongTypeGivesWhatWasExpectedAndItsLine) {
  TrainOptions options;
  for (const Key& key : train_keys(&options)) {
    const std::string name = with_underscores(key.name);
    const bool is_flag = std::holds_alternative<bool*>(key.value);
    const bool is_object = key.form == Form::kObject;
    const std::string wrong = is_flag ? "0" : is_object ? "[1]" : "{a: 1}";
    const std::string message = message_of("\n" + name + ": " + wrong + "\n");
    EXPECT_EQ(message.find("2: " + name + ": expected "), 0U) << message;
    const char* got = is_flag ? "the whole number 0" : is_object ? "a list" : "a mapping";
    EXPECT_THAT(message, HasSubstr(std::string("got ") + got));
  }
}

TEST(PlainFile, MistakesAreSaidInOneLine) {
  EXPECT_EQ(message_of("lr: true\n"), "1: lr: expected a number, got true");
  EXPECT_EQ(message_of("steps: 1.5\n"), "1: steps: expected a whole number, got the number 1.5");
  EXPECT_EQ(message_of("steps: 99999999999999999999\n"),
            "1: steps: 99999999999999999999 is too large");
  EXPECT_EQ(message_of("seed: -1\n"),
            "1: seed: expected a whole number of at least 0, got the whole number -1");
  EXPECT_EQ(message_of("shuffle: 1\n"),
            "1: shuffle: expected true or false, got the whole number 1");
  EXPECT_EQ(message_of("model: 7\n"),
            "1: model: expected text (in quotes, if that is meant), got the whole number 7");
  EXPECT_EQ(message_of("lr_schedule: cosin\n"),
            "1: lr_schedule: expected constant, linear or cosine, got the text 'cosin'; did you "
            "mean cosine?");
  EXPECT_EQ(message_of("param_dtype: int8\n"),
            "1: param_dtype: expected a dtype (bf16, bfloat16, fp16, float16, half, fp32, float32 "
            "or float), got the text 'int8'");
  EXPECT_EQ(message_of("wrap: ['A,B']\n"), "1: wrap: 'A,B': expected a name without commas");
  EXPECT_THAT(message_of("lr: 1\nglobal_batch: 2\nglobal-batch: 2\n"),
              HasSubstr("3: global-batch: is given twice; first at "));
  EXPECT_THAT(message_of("- a\n"), HasSubstr("1: expected a mapping of keys, got a list"));
}

TEST(PlainFile, ThatCannotBeReadIsNamed) {
  for (const std::string& path : {::testing::TempDir(), ::testing::TempDir() + "/nothing.yaml"}) {
    try {
      read_plan({path, "", {}});
      FAIL();
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find(path + ": "), 0U) << error.what();
    }
  }
}

}  // namespace
}  // namespace fsdp2::config
