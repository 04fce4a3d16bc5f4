// The simple file of the GPT presets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/model_presets.h"

namespace fsdp2::config {
namespace {

Plan simple_plan(const std::string& text) { return plan_of(read_yaml(text, "simple.yaml"), ""); }

TEST(SimpleFile, SetsWhatItsKeysMean) {
  const TrainOptions o = simple_plan(
                             "fsdp: true\nsharding_strategy: SHARD_GRAD_OP\nworld_size: 4\n"
                             "compile: false\nmodel: gpt-90m\ndata: t.bin\ntrain_batch: 16\n"
                             "steps: 30\nlearning_rate: 1.0e-4\nresume_from: old\nout_dir: new\n"
                             "save_every: 10\nfull_state_dict: true\nlibfsdp2: {seq_len: 64}\n")
                             .options;
  EXPECT_EQ(o.strategy, "shard_grad_op");
  EXPECT_EQ(o.world_size, 4);
  EXPECT_EQ(o.model_config, "gpt-90m");
  EXPECT_EQ(o.model, "");
  EXPECT_EQ(o.tokens, "t.bin");
  EXPECT_EQ(o.global_batch, 16);
  EXPECT_EQ(o.steps, 30);
  EXPECT_EQ(o.lr, 1e-4);
  EXPECT_EQ(o.resume, "old");
  EXPECT_EQ(o.save_dir, "new");
  EXPECT_EQ(o.save_every, 10);
  EXPECT_EQ(o.save_weights, "full");
  EXPECT_EQ(o.seq_len, 64);
}

TEST(SimpleFile, WithoutFsdpNothingIsShardedWhateverTheStrategy) {
  for (const std::string text : {"fsdp: false\nsharding_strategy: FULL_SHARD\n",
                                 "sharding_strategy: FULL_SHARD\nfsdp: false\n"}) {
    EXPECT_EQ(simple_plan(text).options.strategy, "no_shard") << text;
  }
  EXPECT_EQ(simple_plan("sharding_strategy: _HYBRID_SHARD_ZERO2\n").options.strategy,
            "hybrid_shard_zero2");
}

TEST(SimpleFile, WithoutSaveEveryItSavesAtTheEnd) {
  EXPECT_EQ(simple_plan("fsdp: true\nsteps: 30\nout_dir: out\n").options.save_every, 30);
  const Plan nowhere = simple_plan("fsdp: true\nfull_state_dict: false\n");
  EXPECT_EQ(nowhere.options.save_weights, "no");
  EXPECT_EQ(nowhere.notes.size(), 1U);
}

TEST(SimpleFile, TakesAnyOtherModelAsAPath) {
  const TrainOptions o = simple_plan("fsdp: true\nmodel: gpt-91m\ndata: book.txt\n").options;
  EXPECT_EQ(o.model, "gpt-91m");
  EXPECT_EQ(o.model_config, "");
  EXPECT_EQ(o.text, "book.txt");
}

TEST(SimpleFile, WhatItCannotSayIsRefused) {
  for (const std::string text :
       {"fsdp: true\ncompile: true\n", "sharding_strategy: SHARD\n", "sharding_strategy: ''\n",
        "train_batch: eight\n", "fsdp: true\nmodel: 90\n"}) {
    EXPECT_THROW(simple_plan(text), ConfigError) << text;
  }
}

TEST(ModelPresets, AreGpt2WithTheSizesOfTheirNames) {
  const auto parameters = [](const std::string& name) {
    const nlohmann::json config = nlohmann::json::parse(config_of_preset(name));
    const int64_t width = config.at("n_embd");
    const int64_t rows =
        config.at("vocab_size").get<int64_t>() + config.at("n_positions").get<int64_t>();
    return rows * width + config.at("n_layer").get<int64_t>() * (12 * width * width + 13 * width) +
           2 * width;
  };
  EXPECT_EQ(parameters("gpt-90m"), 91'933'440);
  EXPECT_EQ(parameters("gpt-300m"), 304'486'400);
  EXPECT_EQ(model_presets(), (std::vector<std::string>{"encoder-45m", "gpt-300m", "gpt-90m"}));
}

TEST(ModelPresets, HaveAnEncoderWithTheSizeOfItsName) {
  const nlohmann::json config = nlohmann::json::parse(config_of_preset("encoder-45m"));
  const int64_t width = config.at("hidden_size");
  const int64_t rows =
      config.at("vocab_size").get<int64_t>() + config.at("max_position_embeddings").get<int64_t>();
  EXPECT_EQ(rows * width +
                config.at("num_hidden_layers").get<int64_t>() * (12 * width * width + 13 * width),
            44'932'096);
  EXPECT_LT(config.at("mask_token_id"), config.at("vocab_size"));
}

}  // namespace
}  // namespace fsdp2::config
