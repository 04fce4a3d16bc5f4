// Checklist, hybrid sharding: HSD.
#include <gtest/gtest.h>

#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

TEST(ChecklistHsd, HSD1_AccumulationEqualsTheAveragedReference) {
  const auto make = [](int64_t width) {
    return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
        std::make_shared<LayerNorm>(width, /*has_bias=*/false), std::make_shared<Mlp>(width, 3),
        std::make_shared<Mlp>(width), std::make_shared<Mlp>(width, 3)}));
  };
  for (const int64_t width : {3, 16, 17}) {
    for (const Policy& policy : policies_true_false()) {
      run_ranks(4, [&](const WorldPtr& world) {
        const auto model = make(width);
        const auto reference = make(width);
        const UnitPtr root = shard_items_and_root(model, hybrid_mesh(world, 2), policy);
        Training training;
        training.steps = 5;
        training.microbatches = 3;
        training.before = [&](int micro) { root->set_requires_gradient_sync(micro == 2); };
        expect_same_training({*root, *model, *reference, world->rank(), 4}, training,
                             [&](nn::Module& module, int batch, int rank) {
                               return module(random_input({8, width}, batch, rank)).sum();
                             });
      });
    }
  }
}

void expect_transformer_parity(int ranks, int64_t shards) {
  const TransformerOptions options{3, /*tokens=*/1024, /*positions=*/64};
  run_ranks_by_both_schedules(ranks, [&](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<TinyTransformer>(options));
    const auto reference = seed(std::make_shared<TinyTransformer>(options));
    const UnitPtr root =
        shard_blocks_and_root(model, hybrid_mesh(world, shards), policy_unset(schedule));
    Training training;
    training.losses = kOrder;
    training.values = {5e-4, 1e-4};  // gradients are sums over 1,024 tokens, of size 100
    expect_same_training({*root, *model, *reference, world->rank(), ranks}, training,
                         [&](nn::Module& module, int batch, int rank) {
                           return module(random_tokens({3, 16}, options.tokens, batch, rank)).sum();
                         });
  });
}

TEST(ChecklistHsd, HSD2_ATransformerOnTwoReplicasOfTwo) { expect_transformer_parity(4, 2); }
TEST(ChecklistHsd, HSD2_ATransformerOnTwoReplicasOfFour) { expect_transformer_parity(8, 4); }

}  // namespace
}  // namespace fsdp2::checklist
