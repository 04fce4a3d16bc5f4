// Checklist, training parity on a 1-D mesh: TRN.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

constexpr TransformerOptions kWide3{3, /*tokens=*/1024, /*positions=*/64};

StepLoss token_loss(at::IntArrayRef sizes, int64_t count) {
  return [sizes = sizes.vec(), count](nn::Module& model, int step, int rank) {
    return model(random_tokens(sizes, count, step, rank)).sum();
  };
}

Training by_order() {
  Training training;
  training.losses = kOrder;
  training.values = kOrder;
  return training;
}

// Ten Adam steps of the wide transformer, blocks and root, on new tokens each step.
struct WideRun {
  std::shared_ptr<TinyTransformer> model;
  UnitPtr root;

  WideRun(const WorldPtr& world, const Policy& policy)
      : model(seed(std::make_shared<TinyTransformer>(kWide3))),
        root(shard_blocks_and_root(model, flat_mesh(world), policy)) {}

  void expect_losses(const WorldPtr& world, const Training& training, const StepLoss& loss) const {
    const auto reference = seed(std::make_shared<TinyTransformer>(kWide3));
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, training, loss);
  }
};

void expect_linears_train(int size, const RankOptions& ranks) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{16, 15, 8}, {7, 15, 3}, {16, 17, 8}}) {
    run_ranks(
        size,
        [&](const WorldPtr& world) {
          const auto model = seed(make_linears(sizes));
          const auto reference = seed(make_linears(sizes));
          const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset());
          expect_same_training({*root, *model, *reference, world->rank(), world->size()}, {},
                               [&](nn::Module& module, int /*step*/, int rank) {
                                 return module(random_input({4, sizes[0]}, 0, rank)).sum();
                               });
        },
        ranks);
  }
}

TEST(ChecklistTrn, TRN1_UnevenLinearsEqualTheAveragedReference) {
  expect_linears_train(2, {});
  expect_linears_train(8, {});
}

TEST(ChecklistTrn, TRN1_TheSameOverGloo) {
  RankOptions ranks;
  ranks.backend = BackendKind::kGloo;
  expect_linears_train(2, ranks);
  expect_linears_train(8, ranks);
}

TEST(ChecklistTrn, TRN2_TransformerEqualsTheAveragedReference) {
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(4, [&](const WorldPtr& world) {
      WideRun(world, policy).expect_losses(world, by_order(), token_loss({3, 64}, kWide3.tokens));
    });
  }
}

TEST(ChecklistTrn, TRN2_ARankThatIsLateChangesNothing) {
  run_ranks(4, [](const WorldPtr& world) {
    const WideRun run(world, policy_true());
    Training training = by_order();
    int step = 0;
    const auto sleep_in_turn = [&](int turn) {
      if ((step + turn) % 4 == world->rank()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    };
    training.after_reference = [&] {  // before the optimizer's step
      sleep_in_turn(1);
      ++step;
    };
    const StepLoss loss = token_loss({3, 64}, kWide3.tokens);
    run.expect_losses(world, training, [&](nn::Module& module, int batch, int rank) {
      const at::Tensor value = loss(module, batch, rank);
      if (&module == run.model.get()) {
        sleep_in_turn(0);
      }
      return value;
    });
  });
}

TEST(ChecklistTrn, TRN3_OffloadedShardsLiveInHostMemory) {
  Policy policy = policy_true();
  policy.offload.to_cpu = true;
  policy.offload.pin_memory = false;
  run_ranks(4, [&](const WorldPtr& world) {
    const WideRun run(world, policy);
    run.expect_losses(world, by_order(), token_loss({3, 64}, kWide3.tokens));
    run.model->operator()(random_tokens({3, 64}, kWide3.tokens, 0, 0)).sum().backward();
    for (const fsdp::ShardedParam* param : run.root->parameters()) {
      EXPECT_TRUE(param->sharded().is_cpu() && param->sharded().grad().is_cpu()) << param->name();
    }
  });
}

TEST(ChecklistTrn, TRN4_GathersStartedBeforehandChangeNothing) {
  run_ranks(4, [](const WorldPtr& world) {
    const WideRun run(world, policy_true());
    run.expect_losses(world, by_order(), [&](nn::Module& model, int step, int rank) {
      if (&model == run.model.get()) {
        run.root->unshard(/*async_op=*/true);
      }
      return model(random_tokens({3, 64}, kWide3.tokens, step, rank)).sum();
    });
  });
}

TEST(ChecklistTrn, TRN5_ExplicitPrefetchOfTwoBlocksEachWay) {
  run_ranks_by_both_schedules(4, [](const WorldPtr& world, Schedule schedule) {
    const TransformerOptions options{8};
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const auto reference = seed(std::make_shared<TinyTransformer>(options));
    const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy_true(schedule));
    std::vector<UnitPtr> units;
    for (const auto& block : model->blocks) {
      units.push_back(fsdp::find_unit(*block));
    }
    for (size_t i = 0; i < units.size(); ++i) {
      std::vector<UnitPtr> next;
      std::vector<UnitPtr> previous;
      for (size_t ahead = 1; ahead <= 2; ++ahead) {
        if (i + ahead < units.size()) {
          next.push_back(units[i + ahead]);
        }
        if (i >= ahead) {
          previous.push_back(units[i - ahead]);
        }
      }
      units[i]->set_modules_to_forward_prefetch(next);
      units[i]->set_modules_to_backward_prefetch(previous);
    }
    Training training;
    training.rule = Rule::kAdamW;
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, training,
                         token_loss({2, 8}, options.tokens));
  });
}

TEST(ChecklistTrn, TRN6_EmbeddingAndOutputAsOneGroup) {
  run_ranks(2, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<TinyTransformer>(kWide3));
    const auto reference = seed(std::make_shared<TinyTransformer>(kWide3));
    const MeshPtr mesh = flat_mesh(world);
    fsdp::fully_shard({model->tok_embeddings, model->output}, mesh, policy_unset());
    const UnitPtr root = shard_blocks_and_root(model, mesh, policy_unset());
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, {},
                         [](nn::Module& module, int /*step*/, int rank) {
                           return module(random_tokens({3, 64}, kWide3.tokens, 0, rank)).sum();
                         });
  });
}

TEST(ChecklistTrn, TRN7_LargestDimsAreSharded) {
  run_ranks(8, [](const WorldPtr& world) {
    const TransformerOptions options{3};
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const auto reference = seed(std::make_shared<TinyTransformer>(options));
    Policy policy = policy_unset();
    policy.shard_dim = largest_dim;
    const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy);
    Training training;
    training.rule = Rule::kAdamW;
    training.steps = 5;
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, training,
                         [&](nn::Module& module, int /*step*/, int rank) {
                           return module(random_tokens({2, 16}, options.tokens, 0, rank)).sum();
                         });
    for (const fsdp::ShardedParam* param : root->parameters()) {
      expect_close(full_parameter(*root, *param), find_parameter(*reference, param->name()), kT32,
                   param->name());
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
