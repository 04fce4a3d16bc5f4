// Muon on shards equals torch.optim.Muon with AdamW for the rest; make_muon.py makes what is
// expected.
#include "core/train/optim/muon.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/layers/layers.h"
#include "core/train/optim/group_rules.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json read_golden() {
  std::ifstream file("tests/parity/muon/muon.json");
  return json::parse(file);
}

at::Tensor tensor_of(const json& values) {
  if (!values.front().is_array()) {
    return at::tensor(values.get<std::vector<float>>());
  }
  std::vector<at::Tensor> rows;
  for (const json& row : values) {
    rows.push_back(tensor_of(row));
  }
  return at::stack(rows);
}

// A root that uses its children's parameters by itself: the gradient of each is what was given.
class GivenGradients : public nn::Module {
 public:
  explicit GivenGradients(const json& initial) : nn::Module("GivenGradients") {
    register_module("embed", std::make_shared<nn::Embedding>(7, 4, at::kFloat));
    register_module("wide", std::make_shared<nn::Linear>(10, 6, false, at::kFloat));
    register_module("tall", std::make_shared<nn::Linear>(5, 9, true, at::kFloat));
    register_module("square", std::make_shared<nn::Linear>(8, 8, false, at::kFloat));
    register_module("lm_head", std::make_shared<nn::Linear>(4, 7, false, at::kFloat));
    const at::NoGradGuard no_grad;
    for (const auto& entry : named_parameters()) {
      const at::Tensor values = tensor_of(initial.at(entry.key()));
      nn::resize_storage(entry.value(), static_cast<int64_t>(values.nbytes()));
      entry.value().copy_(values);
    }
  }

  // By name; a parameter without one gets none.
  at::Tensor loss_of(const json& gradients) {
    gradients_ = &gradients;
    return (*this)(nn::Values{}).toTensor();
  }

 protected:
  c10::IValue forward(nn::Values /*inputs*/) override {
    at::Tensor loss = at::zeros({});
    for (const auto& entry : named_parameters()) {
      if (gradients_->contains(entry.key())) {
        loss = loss + (entry.value() * tensor_of(gradients_->at(entry.key()))).sum();
      }
    }
    return loss;
  }

 private:
  const json* gradients_ = nullptr;
};

MuonOptions options_of(const json& golden, const json& tested) {
  MuonOptions options;
  options.lr = golden.at("lr");
  options.weight_decay = golden.at("weight_decay");
  options.momentum = tested.at("momentum");
  options.nesterov = tested.at("nesterov");
  options.newton_schulz_steps = tested.at("ns_steps");
  options.matched_adamw_rms = tested.at("matched_adamw_rms");
  return options;
}

struct Training {
  Training(const std::shared_ptr<World>& world, const json& golden, const MuonOptions& options,
           const fsdp::Policy& policy = {}, int64_t fsdp_size = 0)
      : model(std::make_shared<GivenGradients>(golden.at("initial"))),
        root(fsdp::fully_shard(model, Mesh::for_fsdp(world, fsdp_size), policy)),
        optimizer(make_muon(root, options)) {}

  void step(const json& gradients, double divisor = 1.0) {
    model->loss_of(gradients).backward();
    optimizer->step(divisor);
    optimizer->zero_grad();
  }

  void run(const json& golden) {
    for (const json& gradients : golden.at("gradients")) {
      step(gradients);
    }
  }

  // Values and states, whole.
  std::map<std::string, at::Tensor> tensors() {
    std::map<std::string, at::Tensor> all;
    for (size_t i = 0; i < optimizer->params().size(); ++i) {
      const fsdp::ShardedParam& param = *optimizer->params()[i];
      all[param.name()] = fsdp::full_parameter(*root, param);
      for (const OptimizerState& state : optimizer->state(i)) {
        all[param.name() + " " + state.name] =
            state.is_sharded ? fsdp::full_value(*root, param, state.tensor) : state.tensor.clone();
      }
    }
    return all;
  }

  std::shared_ptr<GivenGradients> model;
  std::shared_ptr<fsdp::Unit> root;
  std::unique_ptr<Optimizer> optimizer;
};

// Products in bf16 may be summed in another order than in Python; a step moves a value by about
// 0.02 * 0.2 * sqrt(10), of which a rounding step of bf16 is 1/256.
constexpr double kTolerance = 5e-4;

TEST(Muon, EqualsTorchsAtAnyWorldSize) {
  const json golden = read_golden();
  for (const json& tested : golden.at("cases")) {
    for (const int world_size : {1, 2, 3, 4}) {
      run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
        Training training(world, golden, options_of(golden, tested));
        training.run(golden);
        const auto tensors = training.tensors();
        for (const auto& [name, values] : tested.at("after").items()) {
          EXPECT_LE((tensors.at(name) - tensor_of(values)).abs().max().item<double>(), kTolerance)
              << name;
        }
        for (const auto& [name, values] : tested.at("momentum_buffer").items()) {
          EXPECT_TRUE(
              at::allclose(tensors.at(name + " momentum_buffer"), tensor_of(values), 1e-5, 1e-6))
              << name;
        }
      });
    }
  }
}

std::map<std::string, at::Tensor> tensors_after(int world_size, const fsdp::Policy& policy,
                                                int64_t fsdp_size = 0) {
  const json golden = read_golden();
  std::map<std::string, at::Tensor> tensors;
  run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
    Training training(world, golden, {}, policy, fsdp_size);
    training.run(golden);
    const auto mine = training.tensors();
    if (world->rank() == 0) {
      tensors = mine;
    }
  });
  return tensors;
}

// Only the matrices are compared: the kernel of AdamW rounds by the places of values in their
// shard.
void expect_same_bits(const std::map<std::string, at::Tensor>& a,
                      const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const char* name : {"wide.weight", "tall.weight", "square.weight"}) {
    EXPECT_TRUE(at::equal(a.at(name), b.at(name))) << name;
    const std::string momentum = std::string(name) + " momentum_buffer";
    EXPECT_TRUE(at::equal(a.at(momentum), b.at(momentum))) << name;
  }
}

// Sums of two or four equal gradients, halved or quartered, are exact.
TEST(Muon, HasTheSameBitsAtAnyWorldSize) {
  const auto alone = tensors_after(1, {});
  expect_same_bits(tensors_after(2, {}), alone);
  expect_same_bits(tensors_after(4, {}), alone);
  expect_same_bits(tensors_after(4, {}, 2), alone);
}

TEST(Muon, TakesMatricesThatAreShardedAlongTheirSecondDim) {
  fsdp::Policy policy;
  policy.shard_dim = [](const std::string&, const at::Tensor& parameter) {
    return parameter.dim() == 2 && parameter.size(1) % 2 == 0 ? 1 : 0;
  };
  expect_same_bits(tensors_after(2, policy), tensors_after(1, {}));
}

// Each rank gathers all matrices, padded, in bf16, with a flag each; and is sent its rows of those
// that others have worked on.
TEST(Muon, MovesABf16GatherAndItsOwnRows) {
  const json golden = read_golden();
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    Training training(world, golden, {});
    EXPECT_EQ(training.optimizer->received_bytes(), 0);
    training.run(golden);
    constexpr int64_t kWide = 3 * 10;
    constexpr int64_t kTall = 5 * 5;
    constexpr int64_t kSquare = 4 * 8;
    // The square one is the dearest and the first rank's, the other two are the second's.
    const int64_t rows = world->rank() == 0 ? kWide + kTall : kSquare;
    EXPECT_EQ(training.optimizer->received_bytes(),
              4 * 2 * (kWide + kTall + kSquare + /*flags*/ 3 + rows));
  });
}

TEST(Muon, LeavesWhatIsNoMatrixOfAHiddenLayerToAdamW) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const json golden = read_golden();
    Training training(world, golden, {});
    const Optimizer& optimizer = *training.optimizer;
    ASSERT_EQ(optimizer.group_count(), 2U);
    std::map<std::string, size_t> groups;
    for (size_t i = 0; i < optimizer.params().size(); ++i) {
      groups[optimizer.params()[i]->name()] = optimizer.group_of(i);
    }
    EXPECT_EQ(groups, (std::map<std::string, size_t>{{"embed.weight", 1},
                                                     {"wide.weight", 0},
                                                     {"tall.weight", 0},
                                                     {"tall.bias", 1},
                                                     {"square.weight", 0},
                                                     {"lm_head.weight", 1}}));
  });
}

TEST(Muon, GivesMatricesToAdamWIfAsked) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const json golden = read_golden();
    Training training(world, golden, {});
    training.step(golden.at("gradients").front());
    add_group(*training.optimizer, {"square.weight"}, AdamWOptions{1e-2});
    add_group(*training.optimizer, {"wide.weight"}, MuonOptions{1e-4});
    training.run(golden);
    const auto tensors = training.tensors();
    EXPECT_EQ(tensors.count("square.weight exp_avg"), 1U);
    EXPECT_EQ(tensors.at("square.weight step").item<double>(), 4);
    EXPECT_EQ(tensors.count("wide.weight momentum_buffer"), 1U);
  });
}

TEST(Muon, TakesRulesForGroups) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Training training(world, read_golden(), {});
    exempt_from_decay(*training.optimizer, {false, true});
    scale_lr(*training.optimizer, {"tall.*"}, 0.5);
    EXPECT_EQ(training.optimizer->group_count(), 4U);
  });
}

// As it would be with the gradients divided.
TEST(Muon, DividesGradientsOnTheWay) {
  const json golden = read_golden();
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    Training plain(world, golden, {});
    Training clipped(world, golden, {});
    const json& gradients = golden.at("gradients").front();
    plain.step(gradients);
    clipped.step(gradients, 4.0);
    EXPECT_TRUE(at::equal(plain.tensors().at("wide.weight momentum_buffer"),
                          4 * clipped.tensors().at("wide.weight momentum_buffer")));
    EXPECT_TRUE(at::equal(plain.tensors().at("wide.weight"), clipped.tensors().at("wide.weight")));
  });
}

TEST(Muon, LeavesParametersWithoutAGradientAlone) {
  const json golden = read_golden();
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [&](const std::shared_ptr<World>& world) {
      Training training(world, golden, {});
      const auto before = training.tensors();
      json gradients = golden.at("gradients").front();
      gradients.erase("wide.weight");
      training.step(gradients);
      const auto after = training.tensors();
      EXPECT_TRUE(at::equal(after.at("wide.weight"), before.at("wide.weight")));
      EXPECT_FALSE(at::equal(after.at("tall.weight"), before.at("tall.weight")));
    });
  }
}

// A rank whose gradient somebody took away neither hangs the others nor leaves their values apart.
TEST(Muon, GoesOnWhereOneRankLacksAGradient) {
  const json golden = read_golden();
  run_ranks(3, [&](const std::shared_ptr<World>& world) {
    Training training(world, golden, {});
    training.model->loss_of(golden.at("gradients").front()).backward();
    for (fsdp::ShardedParam* param : training.optimizer->params()) {
      if (world->rank() == 1 && param->name() == "wide.weight") {
        at::Tensor(param->sharded()).mutable_grad() = at::Tensor();
      }
    }
    const auto before = training.tensors();
    training.optimizer->step();
    const auto after = training.tensors();
    EXPECT_FALSE(at::equal(after.at("wide.weight"), before.at("wide.weight")));
    EXPECT_TRUE(after.at("wide.weight").isfinite().all().item<bool>());
  });
}

TEST(Muon, LeavesZeroGradientsZero) {
  json golden = read_golden();
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    MuonOptions options;
    options.weight_decay = 0.0;
    Training training(world, golden, options);
    const auto before = training.tensors();
    training.step(golden.at("gradients").front(), std::numeric_limits<double>::infinity());
    EXPECT_TRUE(at::equal(training.tensors().at("wide.weight"), before.at("wide.weight")));
  });
}

class WithAnEmptyMatrix : public nn::Module {
 public:
  WithAnEmptyMatrix() : nn::Module("WithAnEmptyMatrix") {
    full = register_parameter("full", at::ones({4, 3}));
    empty = register_parameter("empty", at::ones({4, 0}));
  }
  at::Tensor full, empty;

 protected:
  c10::IValue forward(nn::Values /*inputs*/) override { return full.square().sum() + empty.sum(); }
};

TEST(Muon, TakesAMatrixWithoutElements) {
  for (const int ranks : {1, 2, 3}) {
    run_ranks(ranks, [](const std::shared_ptr<World>& world) {
      const auto model = std::make_shared<WithAnEmptyMatrix>();
      const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
      const std::unique_ptr<Optimizer> optimizer = make_muon(root, {});
      (*model)(nn::Values{}).toTensor().backward();
      optimizer->step();
      const fsdp::ShardedParam& full = *optimizer->params().front();
      EXPECT_LT(fsdp::full_parameter(*root, full).max().item<double>(), 1.0);
    });
  }
}

TEST(Muon, RefusesWhatIsNoMatrixByAnyOfItsNames) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<GivenGradients>(read_golden().at("initial"));
    model->register_parameter("tied", model->named_parameters()["tall.bias"]);
    const auto root = fsdp::fully_shard(model, Mesh::for_fsdp(world, 0), {});
    const auto optimizer = make_muon(root, {});
    for (const char* name : {"tied", "tall.bias"}) {
      EXPECT_THAT(message_of_error([&] { add_group(*optimizer, {name}, MuonOptions{}); },
                                   Code::kInvalidArgument),
                  HasSubstr("has 1 dims"));
    }
  });
}

TEST(Muon, RefusesOptionsOutOfRange) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    Training training(world, read_golden(), {});
    const auto refusal = [&](auto change) {
      MuonOptions options;
      change(&options);
      return message_of_error([&] { make_muon(training.root, options); }, Code::kInvalidArgument);
    };
    EXPECT_THAT(refusal([](MuonOptions* o) { o->momentum = 1.0; }), HasSubstr("momentum"));
    EXPECT_THAT(refusal([](MuonOptions* o) { o->newton_schulz_steps = 100; }),
                HasSubstr("newton_schulz_steps: expected a number in [0, 99], got 100"));
    EXPECT_THAT(refusal([](MuonOptions* o) { o->matched_adamw_rms = -1; }),
                HasSubstr("matched_adamw_rms"));
    EXPECT_THAT(
        message_of_error([&] { add_group(*training.optimizer, {"tall.bias"}, MuonOptions{}); },
                         Code::kInvalidArgument),
        HasSubstr("tall.bias has 1 dims"));
    EXPECT_THAT(message_of_error(
                    [&] { training.optimizer->set_hyper_parameters(0, {{"use_muon", false}}); },
                    Code::kInvalidArgument),
                HasSubstr("its parameters were AdamW's, and are Muon's here"));
  });
}

}  // namespace
}  // namespace fsdp2::train
