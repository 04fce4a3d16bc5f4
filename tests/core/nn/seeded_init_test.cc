#include "core/nn/seeded_init.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "tests/core/nn/closeness.h"

namespace fsdp2::nn {
namespace {

constexpr int64_t kRows = 57;
constexpr int64_t kColumns = 331;  // rows begin and end inside blocks of 4,096

at::Tensor rows(SeededInit source, int64_t first, int64_t count, const char* name = "layer.weight",
                at::ScalarType dtype = at::kFloat) {
  at::Tensor out = at::full({count, kColumns}, NAN, dtype);
  source.read(name, {kRows, kColumns}, first, out);
  return out;
}

TEST(SeededInit, RowsAreTheSameWhateverTheSplit) {
  const SeededInit source(7);
  const at::Tensor whole = rows(source, 0, kRows);
  for (const int64_t ranks : {2, 3, 4, 7, 57}) {
    const int64_t chunk = (kRows + ranks - 1) / ranks;
    for (int64_t first = 0; first < kRows; first += chunk) {
      const int64_t count = std::min(chunk, kRows - first);
      EXPECT_TRUE(rows(source, first, count).equal(whole.narrow(0, first, count)));
    }
  }
}

TEST(SeededInit, RowsAreTheSameWithAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const auto by_threads = [](int threads) {
    at::set_num_threads(threads);
    at::Tensor values = at::full({1000, kColumns}, NAN);
    SeededInit(7).read("layer.weight", {1003, kColumns}, 2, values);
    return values;
  };
  const at::Tensor one = by_threads(1);
  for (const int threads : {2, 3, 8}) {
    EXPECT_TRUE(by_threads(threads).equal(one)) << threads;
  }
  at::set_num_threads(before);
}

TEST(SeededInit, AShardWithoutRowsIsFine) { EXPECT_EQ(rows(SeededInit(7), kRows, 0).numel(), 0); }

TEST(SeededInit, MatricesAreNormalWithTheGivenDeviation) {
  at::Tensor values = at::empty({1000, 1000});
  SeededInit(3, 0.5).read("weight", {1000, 1000}, 0, values);
  const at::Tensor unit = values / 0.5;
  EXPECT_NEAR(unit.mean().item<double>(), 0, 0.004);
  EXPECT_NEAR(unit.std().item<double>(), 1, 0.004);
  EXPECT_NEAR(unit.pow(4).mean().item<double>(), 3, 0.05);
  EXPECT_NEAR((unit.abs() < 1).to(at::kDouble).mean().item<double>(), 0.6827, 0.002);
  EXPECT_NEAR((unit.abs() < 3).to(at::kDouble).mean().item<double>(), 0.9973, 0.0005);
  const at::Tensor shifted = unit.flatten().slice(0, 1) * unit.flatten().slice(0, 0, -1);
  EXPECT_NEAR(shifted.mean().item<double>(), 0, 0.004);
}

TEST(SeededInit, ProjectionsOntoTheHiddenStatesMayHaveAnotherDeviation) {
  const SeededInit source(7, 0.5, /*norm_weight=*/1, /*residual_std=*/0.125);
  const char* projection = "transformer.h.0.mlp.c_proj.weight";
  EXPECT_TRUE(at::allclose(rows(source, 0, kRows, projection),
                           rows(SeededInit(7, 0.125), 0, kRows, projection)));
  EXPECT_TRUE(rows(source, 0, kRows).equal(rows(SeededInit(7, 0.5), 0, kRows)));
}

TEST(SeededInit, SeedAndNameChangeTheValues) {
  const at::Tensor values = rows(SeededInit(7), 0, kRows);
  EXPECT_TRUE(values.equal(rows(SeededInit(7), 0, kRows)));
  EXPECT_GT(max_difference(values, rows(SeededInit(8), 0, kRows)), 0.01);
  EXPECT_GT(max_difference(values, rows(SeededInit(7), 0, kRows, "other.weight")), 0.01);
}

TEST(SeededInit, NormsAreOneAndBiasesZero) {
  at::Tensor out = at::full({8}, NAN);
  SeededInit(7).read("model.layers.0.input_layernorm.weight", {8}, 0, out);
  EXPECT_TRUE(out.equal(at::ones({8})));
  SeededInit(7).read("model.layers.0.self_attn.q_norm.weight", {16}, 8, out);
  EXPECT_TRUE(out.equal(at::ones({8})));
  SeededInit(7).read("ln_f.weight", {8}, 0, out);
  EXPECT_TRUE(out.equal(at::ones({8})));
  SeededInit(7).read("q_proj.bias", {8}, 0, out);
  EXPECT_TRUE(out.equal(at::zeros({8})));
}

TEST(SeededInit, NormsMayBeginWithAnotherNumber) {
  at::Tensor out = at::full({8}, 3.0);
  SeededInit(7, 0.02, /*norm_weight=*/0).read("model.layers.0.input_layernorm.weight", {8}, 0, out);
  EXPECT_TRUE(out.eq(0).all().item<bool>());
}

TEST(SeededInit, TheEmbeddingOfPaddingIsZeroOnTheRankThatHasItsRow) {
  const SeededInit source(7, 0.02, 1, std::nullopt, /*padding_token=*/5);
  const char* table = "model.embed_tokens.weight";
  at::Tensor whole = rows(SeededInit(7), 0, kRows, table);
  whole[5].zero_();
  EXPECT_TRUE(rows(source, 0, kRows, table).equal(whole));
  EXPECT_TRUE(rows(source, 0, 5, table).equal(whole.narrow(0, 0, 5)));
  EXPECT_TRUE(rows(source, 5, 3, table).equal(whole.narrow(0, 5, 3)));
  EXPECT_TRUE(rows(source, 6, 3, table).equal(whole.narrow(0, 6, 3)));
  EXPECT_TRUE(rows(source, 0, kRows).equal(rows(SeededInit(7), 0, kRows)));
}

TEST(SeededInit, OtherDtypesGetTheRoundedValues) {
  const SeededInit source(7);
  const at::Tensor half = rows(source, 3, 20, "layer.weight", at::kBFloat16);
  EXPECT_TRUE(half.equal(rows(source, 3, 20).to(at::kBFloat16)));
}

TEST(SeededInit, RefusesRowsOutsideTheParameter) {
  EXPECT_THROW(rows(SeededInit(7), kRows - 1, 2), Error);
  EXPECT_THROW(rows(SeededInit(7), -1, 1), Error);
}

}  // namespace
}  // namespace fsdp2::nn
