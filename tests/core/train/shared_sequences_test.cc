// Ranks that share sequences give the losses and gradients of one rank that has them whole.
#include "tests/core/train/shared_sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/base/error.h"
#include "core/models/language_model.h"
#include "core/nn/recompute/activation_checkpoint.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::train {
namespace {

using ::testing::HasSubstr;

constexpr double kSums = 2e-5;   // other orders of fp32 sums
constexpr double kNoise = 1e-6;  // of gradients that are zero but for rounding

// A lone token attends to itself, whatever its query and key are: their gradients are rounding.
bool may_vanish(const std::string& name, const Inputs& inputs) {
  const bool is_query_or_key =
      name.find("q_proj") != std::string::npos || name.find("k_proj") != std::string::npos;
  return is_query_or_key && !inputs.empty() && inputs[0].size(1) == 1;
}

void expect_same(const Outcome& found, const Outcome& expected, double tolerance = kSums,
                 const Inputs& inputs = {}) {
  EXPECT_NEAR(found.loss, expected.loss, tolerance * std::abs(expected.loss));
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    const auto& [name, gradient] = expected.gradients[i];
    ASSERT_EQ(found.gradients[i].first, name);
    ASSERT_EQ(found.gradients[i].second.defined(), gradient.defined()) << name;
    const double size = gradient.abs().max().item<double>();
    const double off = (found.gradients[i].second - gradient).abs().max().item<double>();
    EXPECT_TRUE(size > 0 || may_vanish(name, inputs)) << name;
    EXPECT_LE(off, tolerance * size + kNoise) << name;
  }
}

// The same on 2 and 4 ranks that share the sequences as on one that does not.
void expect_same_however_shared(const std::string& config, const Inputs& inputs,
                                const Prepare& prepare = {}) {
  const Outcome expected = run_model(whole(), config, by_share({inputs}), {}, prepare);
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    expect_same(run_model(shared_by(ranks), config, by_share({inputs}), {}, prepare), expected,
                kSums, inputs);
  }
}

TEST(SharedSequences, GiveTheLossAndTheGradientsOfOneRank) {
  expect_same_however_shared(llama(4), some_rows(2, 16));
}

TEST(SharedSequences, MayHaveFewerKeyValueHeadsThanRanks) {
  expect_same_however_shared(llama(2), some_rows(2, 16));
  expect_same_however_shared(llama(1), some_rows(2, 16));
}

TEST(SharedSequences, NeedNotDivideByTheRanks) {
  expect_same_however_shared(llama(2), some_rows(2, 13));
  expect_same_however_shared(llama(2), some_rows(3, 5));  // the last part is padding alone
  expect_same_however_shared(llama(2), some_rows(1, 1));
}

TEST(SharedSequences, MayBePackedWithOthersThatBeginAnywhere) {
  Inputs inputs = some_rows(2, 11);
  inputs.push_back(
      at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0}).view({2, 11}));
  expect_same_however_shared(llama(2), inputs);
  expect_same_however_shared(
      llama(2), {inputs[0], inputs[1], at::Tensor(), at::tensor({0, 3, 8, 11, 21, 22})});
}

TEST(SharedSequences, MayBePaddedAndMasked) {
  Inputs inputs = some_rows(2, 9);
  at::Tensor is_token = at::ones({2, 9}, at::kLong);
  is_token[0].slice(0, 0, 3).fill_(0);
  is_token[1].slice(0, 6, 9).fill_(0);
  inputs[1].masked_fill_(is_token.eq(0), -100);
  inputs.insert(inputs.end(), {at::Tensor(), is_token});
  expect_same_however_shared(llama(2), inputs);
  const at::Tensor of_each_head = at::arange(2 * 4 * 9 * 9)
                                      .remainder(3)
                                      .ne(0)
                                      .view({2, 4, 9, 9})
                                      .logical_or(at::eye(9).to(at::kBool));
  inputs[3] = of_each_head;
  expect_same_however_shared(llama(2), inputs);
}

TEST(SharedSequences, MayHaveTheirMaskOnOneRankAlone) {
  Inputs inputs = some_rows(2, 9);
  at::Tensor is_token = at::ones({2, 9}, at::kLong);
  is_token[0].slice(0, 0, 4).fill_(0);
  const Inputs masked = {inputs[0], inputs[1], at::Tensor(), is_token};
  const Outcome expected = run_model(whole(), llama(2), by_share({masked}));
  for (const int64_t giver : {0, 1}) {
    const auto inputs_of = [&](const Mesh& mesh) {
      return mesh.coordinate("cp") == giver ? masked : inputs;
    };
    expect_same(run_model(shared_by(2), llama(2), inputs_of), expected);
  }
}

TEST(SharedSequences, MayHaveLabelsInOnePartOrNone) {
  Inputs inputs = some_rows(2, 12);
  inputs[1].slice(1, 0, 9).fill_(-100);
  expect_same_however_shared(llama(2), inputs);
  inputs[1].fill_(-100);
  EXPECT_TRUE(std::isnan(run_model(shared_by(2), llama(2), by_share({inputs})).loss));
}

TEST(SharedSequences, MayBeSeenThroughAWindow) {
  const std::string mistral = R"({"model_type": "mistral", "vocab_size": 40, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "max_position_embeddings": 64, "sliding_window": 5})";
  expect_same_however_shared(mistral, some_rows(2, 14));
}

TEST(SharedSequences, MeetTheDropoutOfOneRank) {
  const auto gpt2 = [](const std::string& rates) {
    return R"({"model_type": "gpt2", "vocab_size": 40, "n_positions": 32, "n_embd": 32,
               "n_layer": 2, "n_head": 4, )" +
           rates + "}";
  };
  const Prepare in_training = [](nn::Module& module) { module.train(); };
  expect_same_however_shared(gpt2(R"("embd_pdrop": 0.2, "attn_pdrop": 0.0, "resid_pdrop": 0.3)"),
                             some_rows(2, 12), in_training);
  expect_same_however_shared(gpt2(R"("embd_pdrop": 0.1, "attn_pdrop": 0.3, "resid_pdrop": 0.1)"),
                             some_rows(2, 12), in_training);
}

TEST(SharedSequences, MayBeSeenBothWays) {
  const std::string encoder = R"({"model_type": "encoder", "vocab_size": 40, "hidden_size": 32,
      "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
      "max_position_embeddings": 32, "mask_token_id": 39, "dropout": 0.2})";
  const Prepare in_training = [](nn::Module& module) { module.train(); };
  expect_same_however_shared(encoder, some_rows(2, 16), in_training);
  Inputs inputs = some_rows(2, 13);  // the parts are padded
  expect_same_however_shared(encoder, inputs, in_training);
  at::Tensor is_token = at::ones({2, 13}, at::kLong);
  is_token[0].slice(0, 9, 13).fill_(0);
  inputs[1].masked_fill_(is_token.eq(0), -100);
  inputs.insert(inputs.end(), {at::Tensor(), is_token});
  expect_same_however_shared(encoder, inputs, in_training);
}

TEST(SharedSequences, HaveTheLossOfTheirRoutersTogether) {
  const std::string moe = R"({"model_type": "qwen3_moe", "vocab_size": 40, "hidden_size": 32,
      "intermediate_size": 48, "moe_intermediate_size": 16, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 4,
      "num_experts_per_tok": 2, "max_position_embeddings": 64, "norm_topk_prob": true,
      "output_router_logits": true, "router_aux_loss_coef": 0.5})";
  expect_same_however_shared(moe, some_rows(2, 13));
}

TEST(SharedSequences, MayBeRecomputedInBackward) {
  for (const char* kind : {"LlamaDecoderLayer", "LlamaAttention"}) {
    SCOPED_TRACE(kind);
    expect_same_however_shared(llama(2), some_rows(2, 13), [kind](nn::Module& module) {
      nn::checkpoint_by_kind(module, {kind});
    });
  }
}

TEST(SharedSequences, ComputeIn16Bits) {
  ShardOptions options;
  options.policy.mixed_precision.param_dtype = at::kBFloat16;
  options.policy.mixed_precision.reduce_dtype = at::kFloat;
  const auto inputs = by_share({some_rows(2, 16)});
  const Outcome expected = run_model(whole(), llama(2), inputs, options);
  constexpr double kRounding = 0.03;
  for (const int ranks : {2, 4}) {
    expect_same(run_model(shared_by(ranks), llama(2), inputs, options), expected, kRounding);
  }
}

TEST(SharedSequences, OfSeveralBlocksAreThoseOfAsManyRanks) {
  const auto inputs = by_share({some_rows(2, 12, 1), some_rows(2, 12, 2)});
  const Outcome expected = run_model({{2}, {"fsdp"}}, llama(2), inputs);
  expect_same(run_model(shared_by(2, 2), llama(2), inputs), expected);
  // Replicas of shard groups.
  expect_same(run_model({{2, 1, 2}, {"ddp", "fsdp", "cp"}}, llama(2), inputs), expected);
}

TEST(SharedSequences, GiveTheLogitsOfTheWholeToALossOfTheCallers) {
  Inputs inputs = some_rows(2, 13);
  inputs.resize(1);
  const auto loss_of = [](const at::Tensor& logits) {
    EXPECT_EQ(logits.sizes(), (std::vector<int64_t>{2, 13, 40}));
    const at::Tensor weights = at::arange(logits.numel()).remainder(7).view(logits.sizes());
    return (logits * weights).pow(2).mean();
  };
  const Outcome expected = run_model(whole(), llama(2), by_share({inputs}), {}, {}, loss_of);
  for (const int ranks : {2, 4}) {
    expect_same(run_model(shared_by(ranks), llama(2), by_share({inputs}), {}, {}, loss_of),
                expected);
  }
}

TEST(SharedSequences, GiveTheScoresAndNextLogitsOfTheWhole) {
  const Inputs inputs = some_rows(2, 13);
  std::vector<at::Tensor> expected;
  for (const int ranks : {1, 2, 4}) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      const auto mesh = Mesh::create(world, {ranks}, {"cp"});
      const Model model = shard(mesh, llama(2));
      const at::NoGradGuard no_grad;
      models::LanguageModel& language = models::language_model(*model.module, "a test");
      const nn::TokenScores scores = language.score(nn::values_of(inputs), {});
      const at::Tensor next = language.logits_at({inputs[0]}, at::tensor({3, 12}));
      if (ranks == 1) {
        expected = {scores.log_probs, scores.entropies, next};
        return;
      }
      EXPECT_TRUE(at::allclose(scores.log_probs, expected[0], 1e-5, 1e-5));
      EXPECT_TRUE(at::allclose(scores.entropies, expected[1], 1e-5, 1e-5));
      EXPECT_TRUE(at::allclose(next, expected[2], 1e-5, 1e-5));
    });
  }
}

// What a rank of a job is told.
std::string error_of(const Place& place,
                     const std::function<void(const std::shared_ptr<Mesh>&)>& body, Code code) {
  std::string text;
  run_ranks(place.ranks(), [&](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, place.shape, place.names);
    try {
      body(mesh);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      if (world->rank() == 0) {
        EXPECT_EQ(error.code(), code) << error.message();
        text = error.message();
      }
    }
  });
  return text;
}

TEST(SharedSequences, AreRefusedWhereHeadsDoNotDivide) {
  const auto three = [&](const std::string& config) {
    return error_of(
        shared_by(3), [&](const auto& mesh) { shard(mesh, config); }, Code::kInvalidArgument);
  };
  EXPECT_EQ(three(llama(2)),
            "mesh: LlamaAttention: its 4 heads cannot be shared by 3 ranks: expected a number of "
            "ranks that divides them");
  const std::string six = R"({"model_type": "llama", "vocab_size": 40, "hidden_size": 48,
      "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 6,
      "max_position_embeddings": 64, "num_key_value_heads": 2})";
  EXPECT_EQ(three(six),
            "mesh: LlamaAttention: its 2 key-value heads cannot be shared by 3 ranks: expected a "
            "number of ranks that divides them, or that they divide");
}

TEST(SharedSequences, OfOtherBatchesAreAnErrorOnEachPeer) {
  const auto with = [&](const std::function<Inputs(bool odd)>& inputs) {
    return error_of(
        shared_by(2),
        [&](const std::shared_ptr<Mesh>& mesh) {
          const Model model = shard(mesh, llama(2));
          (*model.module)(nn::values_of(inputs(mesh->coordinate("cp") == 1)));
        },
        Code::kInvalidArgument);
  };
  const std::string start =
      "ranks 0 and 1 share sequences: expected the same batch on both, found input ";
  EXPECT_EQ(with([](bool odd) { return some_rows(2, odd ? 8 : 9); }),
            start + "0 to be Long [2, 9] on the one and Long [2, 8] on the other");
  EXPECT_EQ(with([](bool odd) { return some_rows(2, 8, odd ? 1 : 0); }),
            start + "0 to be Long [2, 8] on the one and of other contents on the other");
  EXPECT_EQ(with([](bool odd) {
              Inputs inputs = some_rows(2, 8);
              inputs[1].fill_(odd ? 3 : 2);
              return inputs;
            }),
            start + "1 to be Long [2, 8] on the one and of other contents on the other");
}

// A part that is padded would take a mask of almost the right size.
TEST(SharedSequences, TakeNoMaskOfAnotherLength) {
  const auto with = [&](const at::Tensor& mask) {
    return error_of(
        shared_by(2),
        [&](const std::shared_ptr<Mesh>& mesh) {
          const Model model = shard(mesh, llama(2));
          Inputs inputs = some_rows(2, 8);
          inputs.insert(inputs.end(), {at::arange(8).repeat({2, 1}), mask});
          (*model.module)(nn::values_of(inputs));
        },
        Code::kInvalidArgument);
  };
  EXPECT_EQ(with(at::ones({2, 1, 7, 7}, at::kBool)),
            "mask: expected [batch, heads or 1, 8, 8], as the tokens have, found [2, 1, 7, 7]");
  EXPECT_THAT(with(at::tensor({0, 7, 14})), HasSubstr("expected 0 to 16 (2 rows of 8 tokens)"));
  EXPECT_THAT(with(at::tensor({0, 0, -4})), HasSubstr("expected 0 to 16 (2 rows of 8 tokens)"));
}

TEST(SharedSequences, GiveTheHeadsToTheRanksAlongTheLastDimAlone) {
  EXPECT_THAT(error_of(
                  {{2, 2}, {"cp", "dp"}}, [&](const auto& mesh) { shard(mesh, llama(2)); },
                  Code::kInvalidArgument),
              HasSubstr("mesh: ranks along its dim 'cp' share sequences, and are no replicas: "
                        "expected that dim to be the last of 2 or 3, found Mesh(cp=2, dp=2)"));
}

TEST(SharedSequences, CutParametersOverAllRanks) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 2}, {"dp", "cp"});
    const Model model = shard(mesh, llama(2));
    for (const auto& unit : model.root->units()) {
      EXPECT_EQ(unit->mesh().shape(), std::vector<int64_t>{4});
      EXPECT_EQ(unit->mesh().dim_name(0), "dp_cp");
    }
    EXPECT_EQ(nn::sequence_ranks(*model.module), 2);
  });
}

}  // namespace
}  // namespace fsdp2::train
