// Checklist, shared parameters: SHR.
#include <gtest/gtest.h>

#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

TEST(ChecklistShr, SHR1_ATiedTransformerEqualsTheAveragedReference) {
  for (const Policy& policy : policies_true_false()) {
    run_ranks(4, [&](const WorldPtr& world) {
      const TransformerOptions options{3};
      const auto model = seed(std::make_shared<TinyTransformer>(options));
      const auto reference = seed(std::make_shared<TinyTransformer>(options));
      const UnitPtr root = shard_blocks_and_root(model, flat_mesh(world), policy);
      EXPECT_EQ(find_param(*root, "output.weight").names(),
                (std::vector<std::string>{"tok_embeddings.weight", "output.weight"}));
      EXPECT_EQ(trainable_shards(*root).size(), model->parameters().size() - 1);
      expect_same_training(
          {*root, *model, *reference, world->rank(), world->size()}, {},
          [&](nn::Module& module, int batch, int rank) {
            return module(random_tokens({2, 16}, options.tokens, batch, rank)).sum();
          });
    });
  }
}

// Embedding 17 x 16 and an output that shares its weight.
class Tied : public nn::Module {
 public:
  Tied() : nn::Module("Tied") {
    embedding = register_module("embedding", std::make_shared<Embedding>(17, 16));
    output = register_module("output", std::make_shared<Linear>(16, 17, /*has_bias=*/false));
    output->tie_weight(embedding->weight);
  }
  std::shared_ptr<Embedding> embedding;
  std::shared_ptr<Linear> output;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    return (*output)((*embedding)(inputs[0].toTensor()));
  }
};

TEST(ChecklistShr, SHR2_ATieOverTwoGroupsIsRefused) {
  run_ranks_by_both_schedules(2, [](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<Tied>());
    const MeshPtr mesh = flat_mesh(world);
    fsdp::fully_shard(model->embedding, mesh, policy_unset(schedule));
    try {
      shard_each({model->output, model}, mesh, policy_unset(schedule));
      (*model)(random_tokens({2, 4}, 17, 0, 0));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::kInvalidArgument || error.code() == Code::kWrongState);
      EXPECT_NE(error.message().find("already"), std::string::npos) << error.message();
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
