// Checklist, autograd corner cases, frozen and unused parameters: AUT.
#include <gtest/gtest.h>

#include <map>

#include "tests/parity/checklist/event_text.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

// Two Linear 24 -> 24 with ReLU: x -> (relu(first x), relu(second x)).
class TwoOutputs : public nn::Module {
 public:
  TwoOutputs() : nn::Module("TwoOutputs") {
    first = register_module("first", std::make_shared<Linear>(24, 24));
    second = register_module("second", std::make_shared<Linear>(24, 24));
  }
  std::shared_ptr<Linear> first;
  std::shared_ptr<Linear> second;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    const at::Tensor x = inputs[0].toTensor();
    return c10::ivalue::Tuple::create((*first)(x).relu(), (*second)(x).relu());
  }
};

TEST(ChecklistAut, AUT1_AnOutputThatIsNotUsedLaterOn) {
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<TwoOutputs>());
      const auto reference = seed(std::make_shared<TwoOutputs>());
      const UnitPtr root = shard_each({model->first, model}, flat_mesh(world), policy);
      expect_same_training({*root, *model, *reference, world->rank(), 4}, {},
                           [](nn::Module& module, int step, int rank) {
                             const c10::IValue output =
                                 module(nn::Values{random_input({2, 24}, step, rank)});
                             const auto& elements = output.toTupleRef().elements();
                             const at::Tensor first = elements[0].toTensor();
                             return step < 3 ? (first * elements[1].toTensor()).sum() : first.sum();
                           });
    });
  }
}

// Two Linear 24 -> 24 over the two tensors of a list, or of a map with the keys "a" and "b".
class InContainer : public nn::Module {
 public:
  explicit InContainer(bool is_map) : nn::Module("InContainer"), is_map_(is_map) {
    first = register_module("first", std::make_shared<Linear>(24, 24));
    second = register_module("second", std::make_shared<Linear>(24, 24));
  }
  std::shared_ptr<Linear> first;
  std::shared_ptr<Linear> second;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    if (!is_map_) {
      const std::vector<at::Tensor> in = inputs[0].toTensorVector();
      return std::vector<at::Tensor>{(*first)(in[0]).relu(), (*second)(in[1]).relu()};
    }
    const auto in = inputs[0].toGenericDict();
    c10::Dict<std::string, at::Tensor> out;
    out.insert("a", (*first)(in.at("a").toTensor()).relu());
    out.insert("b", (*second)(in.at("b").toTensor()).relu());
    return out;
  }

 private:
  bool is_map_;
};

c10::IValue in_container(bool is_map, const at::Tensor& a, const at::Tensor& b) {
  if (!is_map) {
    return std::vector<at::Tensor>{a, b};
  }
  c10::Dict<std::string, at::Tensor> map;
  map.insert("a", a);
  map.insert("b", b);
  return map;
}

at::Tensor product_of(bool is_map, const c10::IValue& value) {
  if (is_map) {
    const auto map = value.toGenericDict();
    return map.at("a").toTensor() * map.at("b").toTensor();
  }
  return value.toTensorVector()[0] * value.toTensorVector()[1];
}

TEST(ChecklistAut, AUT2_TensorsInsideListsAndMaps) {
  for (const bool is_map : {false, true}) {
    run_ranks_by_both_schedules(4, [&](const WorldPtr& world, Schedule schedule) {
      const auto make = [&] {
        return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
            std::make_shared<InContainer>(is_map), std::make_shared<InContainer>(is_map),
            std::make_shared<InContainer>(is_map)}));
      };
      const auto model = make();
      const auto reference = make();
      const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_unset(schedule));
      expect_same_training(
          {*root, *model, *reference, world->rank(), 4}, {},
          [&](nn::Module& module, int step, int rank) {
            const at::Tensor x = random_input({4, 24}, step, rank);
            return product_of(is_map, module(nn::Values{in_container(is_map, x, x)})).sum();
          });
    });
  }
}

TEST(ChecklistAut, AUT3_TheGradientReadyCallbackFiresOncePerParameter) {
  run_ranks_by_both_schedules(2, [](const WorldPtr& world, Schedule schedule) {
    const auto model = seed(std::make_shared<Mlp>(8));
    const auto reference = seed(std::make_shared<Mlp>(8));
    const UnitPtr root = shard_each({model->in_proj, model->out_proj, model}, flat_mesh(world),
                                    policy_unset(schedule));
    std::map<std::string, int> calls;
    std::map<std::string, at::Tensor> seen;
    for (const UnitPtr& unit : root->units()) {
      unit->set_on_sharded_grad([&](fsdp::ShardedParam& param) {
        ++calls[param.name()];
        seen[param.name()] = param.sharded().grad().clone();
      });
    }
    const Loss loss = [](nn::Module& module, int rank) {
      return module(random_input({4, 8}, 0, rank)).sum();
    };
    for (int step = 1; step <= 2; ++step) {
      root->zero_grad();
      loss(*model, world->rank()).backward();
      EXPECT_EQ(calls.size(), 4U);
      for (const auto& [name, count] : calls) {
        EXPECT_EQ(count, step) << name;
      }
    }
    averaged_backward(*reference, 2, loss);
    for (const auto& [name, grad] : seen) {
      const at::Tensor expected = find_parameter(*reference, name).grad();
      expect_close(grad, slice_of(find_param(*root, name), expected), kT32, name);
    }
  });
}

void freeze(const at::Tensor& parameter) {
  const_cast<at::Tensor&>(parameter).set_requires_grad(false);
}

TEST(ChecklistAut, AUT5_OnlyBiasesTrain) {
  const auto make = [] {
    const auto model = seed(make_stack3(32));
    for (const auto& parameter : model->named_parameters()) {
      if (parameter.value().dim() == 2) {
        freeze(parameter.value());
      }
    }
    return model;
  };
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(4, [&](const WorldPtr& world) {
      const auto model = make();
      const auto reference = make();
      const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy);
      for (const ModulePtr& item : model->items) {
        unit_of(*item).set_all_reduce_hook([](const at::Tensor& flat) {
          EXPECT_EQ(flat.numel(), (4 * 32 + 32) / 4);  // the biases alone
        });
      }
      expect_same_training({*root, *model, *reference, world->rank(), 4}, {},
                           [](nn::Module& module, int step, int rank) {
                             return module(random_input({8, 32}, step, rank)).sum();
                           });
      EXPECT_EQ(root->scheduler().stats().reduce_scatters, 10 * 3);
    });
  }
}

TEST(ChecklistAut, AUT5_BiasesAreReducedDuringBackward) {
  run_ranks(4, [](const WorldPtr& world) {
    const auto model = seed(make_stack3(32));
    for (const auto& parameter : model->named_parameters()) {
      if (parameter.value().dim() == 2) {
        freeze(parameter.value());
      }
    }
    const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_true());
    const at::Tensor loss = (*model)(random_input({8, 32}, 0, world->rank())).sum();
    root->scheduler().clear_events();
    loss.backward();
    EXPECT_EQ(text_of(root->scheduler().events(), "US"), "U(2) U(1) S(2) U(0) S(1) S(0)");
  });
}

TEST(ChecklistAut, AUT6_EverySecondGroupIsFrozen) {
  const auto make = [] {
    std::vector<ModulePtr> items;
    for (int i = 0; i < 6; ++i) {
      items.push_back(std::make_shared<Sequence>(
          std::vector<ModulePtr>{std::make_shared<Linear>(32, 32), std::make_shared<Relu>()}));
    }
    auto model = seed(std::make_shared<Sequence>(items));
    for (size_t i = 1; i < 6; i += 2) {
      for (const at::Tensor& parameter : model->items[i]->parameters()) {
        freeze(parameter);
      }
    }
    return model;
  };
  run_ranks(4, [&](const WorldPtr& world) {
    const auto model = make();
    const auto reference = make();
    const UnitPtr root = shard_items_and_root(model, flat_mesh(world), policy_true());
    PlainOptimizer sharded(trainable_shards(*root), Rule::kAdam, 1e-2);
    PlainOptimizer plain(trainable_parameters(*reference), Rule::kAdam, 1e-2);
    const auto loss_of = [](nn::Module& module, int step, int rank) {
      return module(random_input({4, 32}, step, rank)).sum();
    };
    for (int step = 0; step < 3; ++step) {
      at::AutoGradMode mode(step != 1);
      const at::Tensor loss = loss_of(*model, step, world->rank());
      expect_close(loss.item<double>(), loss_of(*reference, step, world->rank()).item<double>(),
                   kT32, "loss");
      if (step == 1) {
        continue;
      }
      loss.backward();
      averaged_backward(*reference, 4,
                        [&](nn::Module& module, int rank) { return loss_of(module, step, rank); });
      expect_parity(*root, *reference, kT32, "step " + std::to_string(step));
      sharded.step();
      plain.step();
      root->zero_grad();
      plain.zero_grad();
    }
    for (const fsdp::Event& event : root->scheduler().events()) {
      if (event.kind == fsdp::EventKind::kReduceScatter) {
        EXPECT_TRUE(event.group == "0" || event.group == "2" || event.group == "4") << event.group;
      }
    }
    EXPECT_EQ(root->scheduler().stats().reduce_scatters, 2 * 3);
  });
}

// Three rounds of x = fixed(relu(trained(x))), plus relu(trained(x)) without gradients, in place.
class WithAndWithoutGradients : public nn::Module {
 public:
  WithAndWithoutGradients() : nn::Module("WithAndWithoutGradients") {
    first = register_module("first", std::make_shared<Linear>(5, 5));
    fixed = register_module("fixed", std::make_shared<Linear>(5, 5));
    trained = register_module("trained", std::make_shared<Linear>(5, 5));
    freeze(fixed->weight);
    freeze(fixed->bias);
  }
  std::shared_ptr<Linear> first;
  std::shared_ptr<Linear> fixed;
  std::shared_ptr<Linear> trained;

 protected:
  c10::IValue forward(nn::Values inputs) override {
    at::Tensor x = (*first)(inputs[0].toTensor());
    for (int round = 0; round < 3; ++round) {
      x = (*fixed)((*trained)(x).relu());
      const at::NoGradGuard no_grad;
      x.add_((*trained)(x).relu());
    }
    return x;
  }
};

TEST(ChecklistAut, AUT7_AModuleUsedWithAndWithoutGradients) {
  for (const Policy& policy : policies_true_false_two()) {
    run_ranks(2, [&](const WorldPtr& world) {
      const auto model = seed(std::make_shared<WithAndWithoutGradients>());
      const auto reference = seed(std::make_shared<WithAndWithoutGradients>());
      const UnitPtr root =
          shard_each({model->first, model->fixed, model->trained, model}, flat_mesh(world), policy);
      expect_same_training({*root, *model, *reference, world->rank(), 2}, {},
                           [](nn::Module& module, int step, int rank) {
                             return module(random_input({8, 5}, step, rank)).sum();
                           });
    });
  }
}

class WithUnused : public nn::Module {
 public:
  WithUnused() : nn::Module("WithUnused") {
    used = register_parameter("used", at::zeros({8, 4}));
    unused = register_parameter("unused", at::zeros({8, 4}));
  }
  at::Tensor used;
  at::Tensor unused;

 protected:
  c10::IValue forward(nn::Values inputs) override { return at::linear(inputs[0].toTensor(), used); }
};

TEST(ChecklistAut, AUT8_UnusedParametersGetZerosIfAsked) {
  for (const bool reduces_unused : {false, true}) {
    run_ranks_by_both_schedules(2, [&](const WorldPtr& world, Schedule schedule) {
      const auto model = seed(std::make_shared<WithUnused>());
      const UnitPtr root = fsdp::fully_shard(model, flat_mesh(world), policy_unset(schedule));
      root->set_reduce_unused_parameters(reduces_unused);
      (*model)(random_input({3, 4}, 0, world->rank())).sum().backward();
      EXPECT_TRUE(find_param(*root, "used").sharded().grad().defined());
      const at::Tensor grad = find_param(*root, "unused").sharded().grad();
      ASSERT_EQ(grad.defined(), reduces_unused);
      if (reduces_unused) {
        EXPECT_TRUE(grad.equal(at::zeros({4, 4})));
      }
    });
  }
}

}  // namespace
}  // namespace fsdp2::checklist
