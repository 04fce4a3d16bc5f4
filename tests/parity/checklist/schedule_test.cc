// Checklist, communication counts, prefetch order, explicit unshard: COM. By PyTorch's own
// schedule, on use, unless said otherwise.
#include <gtest/gtest.h>

#include "tests/parity/checklist/event_text.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

// The group of COM-1 and COM-2: parameters of these shapes, which the forward adds up.
class ManyShapes : public nn::Module {
 public:
  ManyShapes() : nn::Module("ManyShapes") {
    const std::vector<std::vector<int64_t>> shapes = {{17, 257}, {17},      {64, 312}, {64},
                                                      {64, 64},  {512, 64}, {256},     {64, 297}};
    for (const std::vector<int64_t>& shape : shapes) {
      weights.push_back(
          register_parameter("weight" + std::to_string(weights.size()), at::zeros(shape)));
    }
  }
  std::vector<at::Tensor> weights;

 protected:
  // scale * sum of all elements: every gradient is the scale.
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor sum = at::zeros({});
    for (const at::Tensor& weight : weights) {
      sum = sum + weight.sum();
    }
    return sum * inputs[0].toTensor();
  }
};

void expect_unsharded_equal(Unit& root, const nn::Module& original) {
  for (const fsdp::ShardedParam* param : root.parameters()) {
    EXPECT_TRUE(param->unsharded().equal(find_parameter(original, param->name()))) << param->name();
  }
}

TEST(ChecklistCom, COM1_OneGatherRestoresEveryParameter) {
  for (const Policy& policy : {policy_true(), policy_of_smaller(2)}) {
    run_ranks(8, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<ManyShapes>());
      const auto original = seed(std::make_shared<ManyShapes>());
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy);
      fsdp::Scheduler& scheduler = root->scheduler();  // which counts from here on
      root->unshard();
      expect_unsharded_equal(*root, *original);
      EXPECT_EQ(scheduler.stats().all_gathers, 1);
      root->reshard();
      (*model)(at::ones({}));
      root->unshard();
      expect_unsharded_equal(*root, *original);
      EXPECT_EQ(scheduler.stats().all_gathers, 3);
    });
  }
}

TEST(ChecklistCom, COM2_ConstantGradientsGiveTheirAverage) {
  run_ranks(8, [](const WorldPtr& world) {
    const auto model = seed(std::make_shared<ManyShapes>());
    const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_true());
    (*model)(at::full({}, world->rank())).backward();
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 1);
    for (const fsdp::ShardedParam* param : root->parameters()) {
      EXPECT_EQ(param->sharded().grad().sizes(), param->layout().local_shape()) << param->name();
      EXPECT_TRUE(full_gradient(*root, *param).eq(3.5).all().item<bool>()) << param->name();
    }
  });
}

struct Counts {
  int64_t forward_gathers;
  int64_t backward_gathers;
  int64_t reductions;
};

// Counts one forward and backward.
Counts counts_of_step(Unit& root, nn::Module& model, int rank) {
  root.scheduler().reset_stats();
  const at::Tensor loss = model(random_tokens({2, 8}, 8, 0, rank)).sum();
  const int64_t forward_gathers = root.scheduler().stats().all_gathers;
  EXPECT_EQ(root.scheduler().stats().reduce_scatters, 0);
  loss.backward();
  const fsdp::Stats& stats = root.scheduler().stats();
  return {forward_gathers, stats.all_gathers - forward_gathers, stats.reduce_scatters};
}

struct Transformer {
  std::shared_ptr<TinyTransformer> model;
  UnitPtr root;
  Transformer(const WorldPtr& world, int64_t layers, const Policy& policy)
      : model(seed(std::make_shared<TinyTransformer>(TransformerOptions{layers}))),
        root(shard_blocks_and_root(model, flat_mesh(world), policy)) {}
};

TEST(ChecklistCom, COM3_CountsByReshardPolicy) {
  const std::vector<std::pair<Policy, int64_t>> cases = {
      {policy_true(), 3}, {policy_of_smaller(2), 3}, {policy_unset(), 2}, {policy_false(), 0}};
  for (const auto& [policy, backward_gathers] : cases) {
    run_ranks(4, [&, policy = policy, expected = backward_gathers](const WorldPtr& world) {
      const Transformer t(world, 2, policy);
      for (int step = 0; step < 2; ++step) {
        const Counts counts = counts_of_step(*t.root, *t.model, world->rank());
        EXPECT_EQ(counts.forward_gathers, 3);
        EXPECT_EQ(counts.backward_gathers, expected);
        EXPECT_EQ(counts.reductions, 3);
      }
    });
  }
}

TEST(ChecklistCom, COM4_ReshardAfterForwardIsSetForTheWholeTree) {
  run_ranks(4, [](const WorldPtr& world) {
    const Transformer t(world, 2, policy_unset());
    EXPECT_EQ(counts_of_step(*t.root, *t.model, world->rank()).backward_gathers, 2);
    t.root->set_reshard_after_forward(true);
    EXPECT_EQ(counts_of_step(*t.root, *t.model, world->rank()).backward_gathers, 3);
    t.root->set_reshard_after_forward(false);
    EXPECT_EQ(counts_of_step(*t.root, *t.model, world->rank()).backward_gathers, 0);
  });
}

TEST(ChecklistCom, COM5_ReshardAfterForwardIsSetForTheRootAlone) {
  run_ranks(4, [](const WorldPtr& world) {
    const Transformer kept(world, 2, policy_false());
    kept.root->set_reshard_after_forward(true, /*recurse=*/false);
    const Counts one = counts_of_step(*kept.root, *kept.model, world->rank());
    EXPECT_EQ(one.backward_gathers, 1);
    EXPECT_EQ(one.reductions, 3);
    const Transformer freed(world, 2, policy_true());
    freed.root->set_reshard_after_forward(false, /*recurse=*/false);
    const Counts two = counts_of_step(*freed.root, *freed.model, world->rank());
    EXPECT_EQ(two.backward_gathers, 2);
    EXPECT_EQ(two.reductions, 3);
  });
}

// Events of one step, forward and backward apart.
struct StepEvents {
  std::string forward;
  std::string backward;
};

StepEvents events_of_step(const Transformer& t, const std::string& kinds, int rank) {
  fsdp::Scheduler& scheduler = t.root->scheduler();
  scheduler.clear_events();
  const at::Tensor loss = (*t.model)(random_tokens({2, 8}, 8, 0, rank)).sum();
  StepEvents events;
  events.forward = text_of(scheduler.events(), kinds);
  scheduler.clear_events();
  loss.backward();
  events.backward = text_of(scheduler.events(), kinds);
  return events;
}

TEST(ChecklistCom, COM6_OrderOfUnshardsAndPostBackwards) {
  const std::string forward = "U(root) U(layers.0) U(layers.1) U(layers.2)";
  const std::string freed =
      "U(layers.2) U(layers.1) P(layers.2) U(layers.0) P(layers.1) P(layers.0) P(root)";
  const std::string kept = "P(layers.2) P(layers.1) P(layers.0) P(root)";
  const std::vector<std::pair<Policy, std::string>> cases = {
      {policy_true(), "U(root) " + freed}, {policy_unset(), freed}, {policy_false(), kept}};
  for (const auto& [policy, backward] : cases) {
    run_ranks(4, [&, policy = policy, expected = backward](const WorldPtr& world) {
      const Transformer t(world, 3, policy);
      for (int step = 0; step < 3; ++step) {
        const StepEvents events = events_of_step(t, "UP", world->rank());
        EXPECT_EQ(events.forward, forward);
        EXPECT_EQ(events.backward, expected);
      }
    });
  }
}

constexpr const char* kDefaultBackward =
    "U(root) U(layers.3) U(layers.2) P(layers.3) U(layers.1) P(layers.2) U(layers.0) P(layers.1) "
    "P(layers.0) P(root)";

TEST(ChecklistCom, COM7_ExplicitForwardPrefetch) {
  run_ranks(4, [](const WorldPtr& world) {
    const Transformer t(world, 4, policy_true());
    for (size_t i = 0; i + 1 < 4; ++i) {
      unit_of(*t.model->blocks[i])
          .set_modules_to_forward_prefetch({fsdp::find_unit(*t.model->blocks[i + 1])});
    }
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(events_of_step(t, "UR", world->rank()).forward,
                "U(root) U(layers.0) U(layers.1) R(layers.0) U(layers.2) R(layers.1) U(layers.3) "
                "R(layers.2) R(layers.3) R(root)");
      EXPECT_EQ(events_of_step(t, "UP", world->rank()).backward, kDefaultBackward);
    }
  });
}

TEST(ChecklistCom, COM8_ExplicitBackwardPrefetchOfThePreviousIsTheDefault) {
  run_ranks(4, [](const WorldPtr& world) {
    const Transformer t(world, 4, policy_true());
    for (size_t i = 1; i < 4; ++i) {
      unit_of(*t.model->blocks[i])
          .set_modules_to_backward_prefetch({fsdp::find_unit(*t.model->blocks[i - 1])});
    }
    for (int step = 0; step < 3; ++step) {
      const StepEvents events = events_of_step(t, "UP", world->rank());
      EXPECT_EQ(events.forward, "U(root) U(layers.0) U(layers.1) U(layers.2) U(layers.3)");
      EXPECT_EQ(events.backward, kDefaultBackward);
    }
  });
}

// ---- explicit prefetch by the agreed schedule, which gathers in its own order and so issues all
// groups up to the last of a list

Policy agreed_with(int prefetch) {
  Policy policy = policy_true(Schedule::kAgreed);
  policy.prefetch = prefetch;
  return policy;
}

// Each block's list, forward and backward: the block `ahead` further on.
void set_prefetch(const Transformer& t, size_t ahead) {
  const auto& blocks = t.model->blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i + ahead < blocks.size()) {
      unit_of(*blocks[i]).set_modules_to_forward_prefetch({fsdp::find_unit(*blocks[i + ahead])});
    }
    if (i >= ahead) {
      unit_of(*blocks[i]).set_modules_to_backward_prefetch({fsdp::find_unit(*blocks[i - ahead])});
    }
  }
}

struct AgreedCase {
  int prefetch;  // of the policy
  size_t ahead;  // of the lists; 0: none
  std::string forward;
  std::string backward;
};

TEST(ChecklistCom, COM7_COM8_ExplicitPrefetchByTheAgreedSchedule) {
  const std::vector<AgreedCase> cases = {
      {0, 0,
       "U(root) U(layers.0) R(layers.0) U(layers.1) R(layers.1) U(layers.2) R(layers.2) "
       "U(layers.3) R(layers.3) R(root)",
       "U(root) U(layers.3) P(layers.3) U(layers.2) P(layers.2) U(layers.1) P(layers.1) "
       "U(layers.0) P(layers.0) P(root)"},
      {0, 1,
       "U(root) U(layers.0) U(layers.1) R(layers.0) U(layers.2) R(layers.1) U(layers.3) "
       "R(layers.2) R(layers.3) R(root)",
       kDefaultBackward},
      {0, 2,
       "U(root) U(layers.0) U(layers.1) U(layers.2) R(layers.0) U(layers.3) R(layers.1) "
       "R(layers.2) R(layers.3) R(root)",
       "U(root) U(layers.3) U(layers.2) U(layers.1) P(layers.3) U(layers.0) P(layers.2) "
       "P(layers.1) P(layers.0) P(root)"},
      // The policy's reach is the least that a list leaves.
      {2, 1,
       "U(root) U(layers.0) U(layers.1) U(layers.2) R(layers.0) U(layers.3) R(layers.1) "
       "R(layers.2) R(layers.3) R(root)",
       "U(root) U(layers.3) U(layers.2) U(layers.1) P(layers.3) U(layers.0) P(layers.2) "
       "P(layers.1) P(layers.0) P(root)"}};
  for (const AgreedCase& c : cases) {
    run_ranks(2, [&](const WorldPtr& world) {
      const Transformer t(world, 4, agreed_with(c.prefetch));
      if (c.ahead > 0) {
        set_prefetch(t, c.ahead);
      }
      for (int step = 0; step < 2; ++step) {
        EXPECT_EQ(events_of_step(t, "UR", world->rank()).forward, c.forward);
        EXPECT_EQ(events_of_step(t, "UP", world->rank()).backward, c.backward);
      }
    });
  }
}

TEST(ChecklistCom, COM9_AUselessPrefetchChangesNothing) {
  run_ranks_by_both_schedules(2, [](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<Mlp>(16));
    const auto reference = seed(std::make_shared<Mlp>(16));
    const UnitPtr root = shard_each({model->in_proj, model->out_proj, model}, flat_mesh(world),
                                    policy_unset(schedule));
    unit_of(*model->in_proj).set_modules_to_backward_prefetch({fsdp::find_unit(*model->out_proj)});
    Training training;
    training.steps = 3;
    expect_same_training({*root, *model, *reference, world->rank(), world->size()}, training,
                         [](nn::Module& module, int step, int rank) {
                           return module(random_input({4, 16}, step, rank)).sum();
                         });
    for (const auto& member : root->scheduler().members()) {
      EXPECT_EQ(member.group->state(), fsdp::GroupState::kSharded) << member.name;
    }
    EXPECT_EQ(root->scheduler().stats().unsharded_bytes, 0);
  });
}

}  // namespace
}  // namespace fsdp2::checklist
