// Checklist, the distributed state dict: DSD. A rank's state is train::state_to_save; gather_state
// makes a full one of it, load_training_state takes one from memory or from rank 0.
#include <gtest/gtest.h>

#include <map>

#include "core/ckpt/ranks/broadcast_source.h"
#include "core/nn/module.h"
#include "core/train/optim/adamw.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"
#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/full_state.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using ckpt::MemorySource;
using ckpt::PythonValue;
using ckpt::StatePath;
using train::LoadReport;

std::shared_ptr<Composite100> composite(uint64_t number = 42) {
  return seed(std::make_shared<Composite100>(), number);
}

// Linears in a row without biases.
std::shared_ptr<Sequence> bare_linears(int count, int64_t width, uint64_t number = 42) {
  std::vector<ModulePtr> items;
  for (int i = 0; i < count; ++i) {
    items.push_back(std::make_shared<Linear>(width, width, /*has_bias=*/false));
  }
  return seed(std::make_shared<Sequence>(items), number);
}

// The model of SDM-1: MLP(d), [MLP(d), Linear d -> d], MLP(d).
std::shared_ptr<Sequence> nested(int64_t width) {
  return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
      std::make_shared<Mlp>(width),
      std::make_shared<Sequence>(std::vector<ModulePtr>{std::make_shared<Mlp>(width),
                                                        std::make_shared<Linear>(width, width)}),
      std::make_shared<Mlp>(width)}));
}

// Each child a group, and the root; without an optimizer.
ShardedRun model_run(const std::shared_ptr<Sequence>& model, const MeshPtr& mesh,
                     const Policy& policy) {
  return {model, shard_items_and_root(model, mesh, policy), nullptr};
}

void expect_model(const StateDict& full, const nn::Module& expected) {
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(expected)) {
    const at::Tensor value = find_tensor(full, "model." + parameter.names[0]);
    ASSERT_TRUE(value.defined()) << parameter.names[0];
    EXPECT_TRUE(value.equal(parameter.tensor)) << parameter.names[0];
  }
}

// ---- taking

// In fp32 the order of a product's sums depends on where its operands lie, and Adam makes a whole
// step of the last bit of a gradient that is nearly 0.
std::shared_ptr<Composite100> composite_in_fp64(uint64_t number = 42) {
  const auto model = composite(number);
  model->to(at::kDouble);
  return model;
}

struct Plain {
  std::shared_ptr<Composite100> model = composite_in_fp64();
  PlainOptimizer optimizer;

  explicit Plain(Rule rule) : optimizer(trainable_parameters(*model), rule, 1e-4) {}

  void step(const at::Tensor& input) {
    (*model)(input).sum().backward();
    optimizer.step();
    optimizer.zero_grad();
  }
};

void expect_plain_state(const StateDict& full, const Plain& plain) {
  const auto parameters = nn::named_unique_parameters(*plain.model);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters[i].names[0];
    const PlainOptimizer::State& state = plain.optimizer.state()[i];
    const auto entry = [&](const char* slot) {
      return find_tensor(full, "optim.state." + name + "." + slot);
    };
    ASSERT_TRUE(entry("step").defined()) << name;
    EXPECT_EQ(entry("step").item<double>(), static_cast<double>(state.step)) << name;
    expect_close(entry("exp_avg"), state.exp_avg, kT32, name + ".exp_avg");
    expect_close(entry("exp_avg_sq"), state.exp_avg_sq, kT32, name + ".exp_avg_sq");
    expect_close(find_tensor(full, "model." + name), parameters[i].tensor, kT32, name);
  }
}

TEST(ChecklistDsd, DSD1_TheFullStateIsThatOfAPlainRun) {
  constexpr int kSteps = 10;
  for (const int size : {2, 4}) {
    run_ranks(size, [](const WorldPtr& world) {
      for (const Policy& policy : {policy_true(), policy_false()}) {
        for (const Rule rule : {Rule::kAdam, Rule::kAdamW}) {
          const train::AdamWOptions options = rule == Rule::kAdam ? adam(1e-4) : adamw(1e-4);
          const ShardedRun run = make_run(composite_in_fp64(), flat_mesh(world), policy, options);
          Plain plain(rule);
          for (int step = 0; step < kSteps; ++step) {
            const at::Tensor input = random_input({8, 100}, step, /*rank=*/0).to(at::kDouble);
            run.step(input);
            plain.step(input);
          }
          const StateDict full = full_state(run);
          expect_plain_state(full, plain);
          const ShardedRun fresh =
              make_run(composite_in_fp64(7), flat_mesh(world), policy, options);
          load(fresh, full);
          expect_same_state(full_state(fresh), full);
        }
      }
    });
  }
}

TEST(ChecklistDsd, DSD2_OfOneRankIsTheOrdinaryState) {
  run_ranks(1, [](const WorldPtr& world) {
    const ShardedRun run = make_run(composite(), flat_mesh(world), policy_unset(), adamw(1e-3));
    run.step(random_input({8, 100}, 0, 0));
    const StateDict own = train::state_to_save(run.objects());
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*run.model)) {
      const at::Tensor value = find_tensor(own, "model." + parameter.names[0]);
      EXPECT_EQ(value.data_ptr(), parameter.tensor.data_ptr()) << parameter.names[0];
      EXPECT_EQ(value.sizes(), parameter.tensor.sizes()) << parameter.names[0];
    }
    for (size_t i = 0; i < run.optimizer->params().size(); ++i) {
      for (const train::OptimizerState& slot : run.optimizer->state(i)) {
        const std::string name =
            "optim.state." + run.optimizer->params()[i]->name() + "." + slot.name;
        EXPECT_EQ(find_tensor(own, name).data_ptr(), slot.tensor.data_ptr()) << name;
      }
    }
    expect_same_state(full_state(run), own);
  });
}

TEST(ChecklistDsd, DSD9_AFullStateIsOnRankZeroAlone) {
  for (const int size : {2, 4}) {
    run_ranks(size, [](const WorldPtr& world) {
      const ShardedRun run = model_run(nested(2), flat_mesh(world), policy_unset());
      const StateDict full = full_state(run, GatherTo::kRankZero);
      if (world->rank() > 0) {
        EXPECT_TRUE(full.tensors.empty() && full.objects.empty());
        return;
      }
      const auto original = nested(2);
      EXPECT_EQ(full.tensors.size(), original->parameters().size());
      expect_model(full, *original);
      for (const ckpt::StateTensor& tensor : full.tensors) {
        EXPECT_TRUE(tensor.local.is_cpu());
      }
    });
  }
}

TEST(ChecklistDsd, DSD10_TheDistributedCallAndTheModulesOwnStateAgree) {
  run_ranks(4, [](const WorldPtr& world) {
    for (int64_t width = 2; width <= 5; ++width) {
      for (const bool reshards : {true, false}) {
        const ShardedRun run =
            model_run(nested(width), flat_mesh(world), reshards ? policy_true() : policy_false());
        if (!reshards) {
          (*run.model)(random_input({2, width}, 0, world->rank()));
        }
        const StateDict own = train::state_to_save(run.objects());
        EXPECT_EQ(own.tensors.size(), run.root->parameters().size());
        for (const fsdp::ShardedParam* param : run.root->parameters()) {
          const at::Tensor value = find_tensor(own, "model." + param->name());
          ASSERT_TRUE(value.defined()) << param->name();
          EXPECT_TRUE(value.equal(param->local_values())) << param->name();
          EXPECT_TRUE(value.numel() == 0 || value.data_ptr() == param->sharded().data_ptr());
        }
        expect_model(full_state(run), *nested(width));
      }
    }
  });
}

TEST(ChecklistDsd, DSD12_GatheringKeepsTheStructureOfANestedMap) {
  for (const int size : {2, 4}) {
    run_ranks(size, [](const WorldPtr& world) {
      const int ranks = world->size();
      const at::Tensor cut = at::arange(ranks * 27, at::kFloat).view({ranks * 3, 3, 3});
      const at::Tensor plain = at::arange(5, at::kLong);
      StateDict state;
      const auto add_cut = [&](const StatePath& path, double shift) {
        ckpt::add_rows(&state, path, cut + shift, world->rank(), ranks);
      };
      add_cut({"cut"}, 0);
      state.add_whole({"plain"}, plain);
      add_cut({"map", "list", int64_t{0}}, 1);
      state.add_whole({"map", "list", int64_t{1}}, plain + 1);
      add_cut({"map", "list", int64_t{2}, "deep"}, 2);
      state.add_object({"map", "number"}, 3);
      const StateDict full = ckpt::gather_state(*world, state, GatherTo::kEveryRank);

      StateDict expected;
      expected.add_whole({"cut"}, cut);
      expected.add_whole({"plain"}, plain);
      expected.add_whole({"map", "list", int64_t{0}}, cut + 1);
      expected.add_whole({"map", "list", int64_t{1}}, plain + 1);
      expected.add_whole({"map", "list", int64_t{2}, "deep"}, cut + 2);
      expected.add_object({"map", "number"}, 3);
      expect_same_state(full, expected);
    });
  }
}

// ---- setting

TEST(ChecklistDsd, DSD3_KeysThatDoNotFitAreErrorsOrReported) {
  run_ranks(2, [](const WorldPtr& world) {
    const ShardedRun run = make_run(composite(), flat_mesh(world), policy_unset(), adamw(1e-3));
    StateDict full = full_state(run);
    full.add_whole({"model", "abc"}, at::zeros({1}));
    expect_error(Code::kInvalidArgument, {"unexpected key", "model.abc"}, [&] { load(run, full); });
    remove_tensor(&full, "model.factor");
    const LoadReport report = load(run, full, /*partial=*/true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"model.factor"});
    EXPECT_EQ(report.unexpected, std::vector<std::string>{"model.abc"});
    remove_tensor(&full, "model.abc");
    expect_error(Code::kNotFound, {"missing key", "model.factor"}, [&] { load(run, full); });
  });
}

TEST(ChecklistDsd, DSD5_AFullStateGivesADeferredModelItsValues) {
  run_ranks(2, [](const WorldPtr& world) {
    const ShardedRun source = model_run(bare_linears(2, 4), flat_mesh(world), policy_unset());
    const StateDict full = full_state(source);
    const auto model = bare_linears(2, 4);
    defer(*model);
    const ShardedRun run = model_run(model, flat_mesh(world), policy_unset());
    for (const fsdp::ShardedParam* param : run.root->parameters()) {
      EXPECT_FALSE(param->has_values()) << param->name();
    }
    load(run, full, /*partial=*/true);
    for (const fsdp::ShardedParam* param : run.root->parameters()) {
      EXPECT_TRUE(param->has_values()) << param->name();
      EXPECT_EQ(param->sharded().size(0), 2) << param->name();
    }
    expect_same_state(full_state(run), full);
    const at::Tensor input = random_input({2, 4}, 0, 0);
    EXPECT_TRUE((*run.model)(input).equal((*bare_linears(2, 4))(input)));
  });
}

TEST(ChecklistDsd, DSD6_RankZerosStateOfAPlainModuleReachesAll) {
  for (const int size : {2, 4}) {
    run_ranks(size, [](const WorldPtr& world) {
      const auto model = std::make_shared<Linear>(2, 2);
      const MeshPtr replicas = Mesh::create(world, {world->size(), 1}, {"ddp", "fsdp"});
      const ShardedRun run{model, fsdp::fully_shard(model, replicas, policy_unset()), nullptr};
      const auto original = seed(std::make_shared<Linear>(2, 2));
      StateDict full;
      if (world->rank() == 0) {
        full.add_whole({"model", "weight"}, original->weight.detach());
        full.add_whole({"model", "bias"}, original->bias.detach());
      }
      const MemorySource memory(full);
      const ckpt::BroadcastSource source(*world, world->rank() == 0 ? &memory : nullptr);
      train::load_training_state(run.objects(), source, /*partial=*/false);
      ASSERT_TRUE(run.root->parameters()[0]->is_whole());
      EXPECT_TRUE(model->weight.equal(original->weight));
      EXPECT_TRUE(model->bias.equal(original->bias));
    });
  }
}

// As torch.optim's own state_dict has it: the parameters' numbers for their names.
StateDict by_number(const StateDict& full, const ShardedRun& run) {
  std::map<ckpt::PathPart, int64_t> numbers;
  ckpt::PythonList list;
  for (const fsdp::ShardedParam* param : run.optimizer->params()) {
    const auto number = static_cast<int64_t>(numbers.size());
    numbers.emplace(param->name(), number);
    list.items.emplace_back(number);
  }
  StateDict numbered;
  for (const ckpt::StateTensor& tensor : full.tensors) {
    StatePath path = tensor.path;
    if (path[0] == ckpt::PathPart(std::string("optim"))) {
      path[2] = numbers.at(path[2]);
    }
    numbered.add_whole(path, tensor.local);
  }
  for (const ckpt::StateObject& object : full.objects) {
    const bool is_list = object.name == "optim.param_groups.0.params";
    numbered.add_object(object.path, is_list ? PythonValue(list) : object.value);
  }
  return numbered;
}

TEST(ChecklistDsd, DSD7_OneProcessAloneTakesAndLoadsItsState) {
  const WorldPtr world = World::join({});
  const ShardedRun run = make_run(composite(), flat_mesh(world), policy_unset(), adamw(1e-3));
  run.step(random_input({8, 100}, 0, 0));
  const StateDict full = full_state(run);
  load(run, full);
  expect_same_state(full_state(run), full);
  for (const StateDict& state : {full, by_number(full, run)}) {
    const ShardedRun fresh = make_run(composite(7), flat_mesh(world), policy_unset(), adamw(1e-3));
    load(fresh, state);
    expect_same_state(full_state(fresh), full);
  }
}

TEST(ChecklistDsd, DSD13_AFullStateGoesBackByBroadcast) {
  for (const bool is_hybrid : {false, true}) {
    run_ranks(4, [is_hybrid](const WorldPtr& world) {
      const MeshPtr mesh = is_hybrid ? hybrid_mesh(world, 2) : flat_mesh(world);
      const ShardedRun run = make_run(seed(make_simple_even()), mesh, policy_unset(), adam(0.01));
      run.step(random_input({3, 5}, 0, world->rank()));
      const StateDict before = copy_of(train::state_to_save(run.objects()));
      const MemorySource full(full_state(run, GatherTo::kRankZero));
      const ckpt::BroadcastSource source(*world, world->rank() == 0 ? &full : nullptr);
      const auto set_back = [&] {
        train::load_training_state(run.objects(), source, /*partial=*/false);
        expect_same_state(train::state_to_save(run.objects()), before);
      };
      set_back();
      run.step(random_input({3, 5}, 1, world->rank()));
      set_back();
    });
  }
}

}  // namespace
}  // namespace fsdp2::checklist
