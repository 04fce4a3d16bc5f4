// Checklist, module lists as one group, partial forwards: GRP.
#include <gtest/gtest.h>

#include "tests/parity/checklist/event_text.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

constexpr int64_t kTokens = 128;

// Sums over 16 tokens and 128 outputs, chunk by chunk and rank by rank in one order or another.
constexpr Tolerance kChunkOrder{5e-5, 1.3e-6};

at::Tensor tokens_of(int batch, int rank) { return random_tokens({2, 8}, kTokens, batch, rank); }

// Called when the head's backward of a chunk, and when all of them, are done.
struct ChunkHooks {
  std::function<void(const at::Tensor& output)> after_chunk;
  std::function<void()> after_chunks;
};

// Forward up to norm, head and backward chunk by chunk, then backward through the trunk with the
// gradients collected. Returns the sum of the chunks' losses.
double chunked_backward(ChunkedHead& model, const at::Tensor& tokens, int64_t chunks,
                        const ChunkHooks& hooks = {}) {
  const at::Tensor hidden = static_cast<nn::Module&>(model)({tokens, true}).toTensor();
  const at::Tensor leaf = hidden.detach().requires_grad_(true);
  double total = 0.0;
  for (const at::Tensor& chunk : leaf.chunk(chunks, /*dim=*/1)) {
    const at::Tensor output = (*model.head)(chunk);
    const at::Tensor loss = output.sum();
    loss.backward();
    total += loss.item<double>();
    if (hooks.after_chunk) {
      hooks.after_chunk(output);
    }
  }
  if (hooks.after_chunks) {
    hooks.after_chunks();
  }
  hidden.backward(leaf.grad());
  return total;
}

enum class Grouping { kNormWithHead, kEach };

std::shared_ptr<ChunkedHead> chunked_head(at::ScalarType dtype) {
  const auto model = seed(std::make_shared<ChunkedHead>(/*tied=*/false));
  model->to(dtype);
  return model;
}

struct Chunked {
  std::shared_ptr<ChunkedHead> model;
  UnitPtr root;

  // head: the policy of norm and head, together or each.
  Chunked(const WorldPtr& world, Grouping grouping, const Policy& policy, const Policy& head,
          at::ScalarType dtype = at::kFloat)
      : model(chunked_head(dtype)) {
    const MeshPtr mesh = flat_mesh(world);
    shard_each({model->embedding, model->body}, mesh, policy);
    if (grouping == Grouping::kNormWithHead) {
      fsdp::fully_shard({model->norm, model->head}, mesh, head);
    } else {
      shard_each({model->norm, model->head}, mesh, head);
    }
    root = fsdp::fully_shard(model, mesh, policy);
  }
  at::Tensor head_gradient() const {
    return find_param(*root, "head.weight").sharded().grad().clone();
  }
};

void expect_equal_shards(Unit& a, Unit& b, Tolerance tolerance, const std::string& what) {
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const fsdp::ShardedParam& mine = *a.parameters()[i];
    const at::Tensor& others = b.parameters()[i]->sharded();
    expect_close(mine.sharded(), others, tolerance, what + " of " + mine.name());
    expect_close(mine.sharded().grad(), others.grad(), tolerance,
                 what + ", gradient of " + mine.name());
  }
}

// One step of the reference: every rank's chunks, averaged. Returns the loss of `rank`.
double averaged_chunks(ChunkedHead& reference, int step, const World& world, int64_t chunks) {
  double loss = 0.0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const double mine = chunked_backward(reference, tokens_of(step, rank), chunks);
    loss = rank == world.rank() ? mine : loss;
  }
  for (const at::Tensor& parameter : reference.parameters()) {
    parameter.grad().div_(world.size());
  }
  return loss;
}

// In fp64: the sums' terms reach 1,000, where a last bit of fp32 is as large as the tolerance.
TEST(ChecklistGrp, GRP1_ChunkedHeadEqualsTheAveragedReference) {
  for (const Policy& policy : policies_true_false()) {
    for (const Grouping grouping : {Grouping::kNormWithHead, Grouping::kEach}) {
      run_ranks(2, [&](const WorldPtr& world) {
        const Chunked c(world, grouping, policy, policy, at::kDouble);
        const auto reference = chunked_head(at::kDouble);
        PlainOptimizer sharded(trainable_shards(*c.root), Rule::kAdam, 1e-2);
        PlainOptimizer plain(trainable_parameters(*reference), Rule::kAdam, 1e-2);
        for (int step = 0; step < 10; ++step) {
          at::Tensor last = at::zeros({});
          at::Tensor after_chunks;
          ChunkHooks hooks;
          hooks.after_chunk = [&](const at::Tensor& /*output*/) {
            const at::Tensor now = c.head_gradient();
            EXPECT_FALSE(now.equal(last));  // every chunk changes it
            last = now;
          };
          hooks.after_chunks = [&] { after_chunks = c.head_gradient(); };
          const double loss = chunked_backward(*c.model, tokens_of(step, world->rank()), 4, hooks);
          const double expected = averaged_chunks(*reference, step, *world, 4);
          expect_close(loss, expected, kChunkOrder, "loss");
          expect_close(after_chunks,
                       slice_of(find_param(*c.root, "head.weight"), reference->head->weight.grad()),
                       kChunkOrder, "head gradient after the chunks");
          expect_parity(*c.root, *reference, kChunkOrder, "before step " + std::to_string(step));
          sharded.step();
          plain.step();
          expect_parity(*c.root, *reference, kChunkOrder, "after step " + std::to_string(step));
          sharded.zero_grad();
          plain.zero_grad();
        }
      });
    }
  }
}

TEST(ChecklistGrp, GRP2_AnOutputDtypeOfTheGroupIsThatOfEachMember) {
  run_ranks(2, [](const WorldPtr& world) {
    Policy policy = policy_true();
    policy.mixed_precision.param_dtype = at::kFloat;
    Policy head = policy;
    head.mixed_precision.output_dtype = at::kBFloat16;
    const Chunked grouped(world, Grouping::kNormWithHead, policy, head);
    const Chunked each(world, Grouping::kEach, policy, head);
    PlainOptimizer grouped_optimizer(trainable_shards(*grouped.root), Rule::kAdam, 1e-2);
    PlainOptimizer each_optimizer(trainable_shards(*each.root), Rule::kAdam, 1e-2);
    ChunkHooks hooks;
    hooks.after_chunk = [](const at::Tensor& output) {
      EXPECT_EQ(output.scalar_type(), at::kBFloat16);
    };
    for (int step = 0; step < 10; ++step) {
      const at::Tensor tokens = tokens_of(step, world->rank());
      {
        const at::NoGradGuard no_grad;
        nn::Module& model = *grouped.model;
        EXPECT_EQ(model({tokens, true}).toTensor().scalar_type(), at::kBFloat16);
      }
      chunked_backward(*grouped.model, tokens, 4, hooks);
      chunked_backward(*each.model, tokens, 4, hooks);
      expect_equal_shards(*grouped.root, *each.root, kT16b, "step " + std::to_string(step));
      grouped_optimizer.step();
      each_optimizer.step();
      grouped.root->zero_grad();
      each.root->zero_grad();
    }
  });
}

TEST(ChecklistGrp, GRP3_MicrobatchesOfChunksReduceOnTheLast) {
  for (const Policy& policy : policies_true_false()) {
    run_ranks(2, [&](const WorldPtr& world) {
      const Chunked grouped(world, Grouping::kNormWithHead, policy, policy);
      const Chunked each(world, Grouping::kEach, policy, policy);
      for (const Chunked* c : {&grouped, &each}) {
        for (int micro = 0; micro < 3; ++micro) {
          c->root->set_requires_gradient_sync(micro == 2);
          c->root->set_is_last_backward(micro == 2);
          chunked_backward(*c->model, tokens_of(micro, world->rank()), 2);
          if (micro < 2) {
            EXPECT_EQ(c->root->scheduler().stats().reduce_scatters, 0);
          }
        }
      }
      expect_equal_shards(*grouped.root, *each.root, kExact, "after the microbatches");
    });
  }
}

TEST(ChecklistGrp, GRP4_TheHeadsGroupStaysUnshardedThroughTheChunks) {
  for (const Policy& policy : policies_true_false()) {
    for (const bool tied : {false, true}) {
      run_ranks(2, [&](const WorldPtr& world) {
        const auto model = seed(std::make_shared<ChunkedHead>(tied));
        const MeshPtr mesh = flat_mesh(world);
        std::vector<ModulePtr> listed{model->norm, model->head};
        if (tied) {
          listed.insert(listed.begin(), model->embedding);
        } else {
          fsdp::fully_shard(model->embedding, mesh, policy);
        }
        fsdp::fully_shard(model->body, mesh, policy);
        const UnitPtr head = fsdp::fully_shard(listed, mesh, policy);
        const UnitPtr root = fsdp::fully_shard(model, mesh, policy);
        PlainOptimizer optimizer(trainable_shards(*root), Rule::kAdam, 1e-2);
        const auto keep = [&](bool flag) {
          head->set_reshard_after_forward(!flag);
          head->set_reshard_after_backward(!flag);
        };
        for (int step = 0; step < 5; ++step) {
          keep(true);
          ChunkHooks hooks;
          hooks.after_chunk = [&](const at::Tensor& /*output*/) {
            EXPECT_EQ(head->group()->state(), fsdp::GroupState::kUnsharded);
          };
          hooks.after_chunks = [&] {
            keep(false);
            head->reshard();
            EXPECT_EQ(head->group()->state(), fsdp::GroupState::kSharded);
          };
          chunked_backward(*model, tokens_of(step, world->rank()), 4, hooks);
          for (const fsdp::ShardedParam* param : root->parameters()) {
            EXPECT_TRUE(param->sharded().grad().defined()) << param->name();
          }
          optimizer.step();
          root->zero_grad();
        }
      });
    }
  }
}

TEST(ChecklistGrp, GRP5_OrderOfListedGroups) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model =
        seed(std::make_shared<TinyTransformer>(TransformerOptions{5, 8, 16, /*tied=*/false}));
    const MeshPtr mesh = flat_mesh(world);
    const auto& blocks = model->blocks;
    fsdp::fully_shard(blocks[0], mesh, policy_true());
    fsdp::fully_shard({blocks[1], blocks[2]}, mesh, policy_true());
    fsdp::fully_shard({blocks[3], blocks[4]}, mesh, policy_true());
    fsdp::fully_shard({model->tok_embeddings, model->pos_embeddings}, mesh, policy_true());
    fsdp::fully_shard({model->norm, model->output}, mesh, policy_false());
    const UnitPtr root = fsdp::fully_shard(model, mesh, policy_true());
    EXPECT_EQ(root->group(), nullptr);
    fsdp::Scheduler& scheduler = root->scheduler();
    const at::Tensor loss = (*model)(random_tokens({2, 8}, 8, 0, world->rank())).sum();
    EXPECT_EQ(text_of(scheduler.events(), "U"),
              "U(tok_embeddings) U(layers.0) U(layers.1) U(layers.3) U(norm)");
    scheduler.clear_events();
    loss.backward();
    EXPECT_EQ(text_of(scheduler.events(), "UP"),
              "U(layers.3) P(norm) U(layers.1) P(layers.3) U(layers.0) P(layers.1) "
              "U(tok_embeddings) P(layers.0) P(tok_embeddings)");
  });
}

}  // namespace
}  // namespace fsdp2::checklist
