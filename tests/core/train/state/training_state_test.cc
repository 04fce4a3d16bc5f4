// A run that is saved and loaded goes on as if it had never stopped, at any world size.
#include "core/train/state/training_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/store/checkpoint_directory.h"
#include "core/fsdp/fully_shard.h"
#include "core/train/optim/adamw.h"
#include "core/train/optim/sgd.h"
#include "tests/core/base/file_fixture.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::train {
namespace {

constexpr int64_t kWidth = 5;

// World size and shard group size.
struct Ranks {
  int world;
  int64_t fsdp;

  std::string name() const { return fmt::format("{}x{}", world, fsdp); }
};

const std::vector<Ranks> kAllRanks = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}};

enum class Algorithm { kAdamW, kSgd };

// A run of a small model whose first blocks are units; `seed` draws its first values.
class TinyRun {
 public:
  TinyRun(const std::shared_ptr<World>& world, const Ranks& ranks, const std::string& tokens,
          double seed = 0.0, Algorithm algorithm = Algorithm::kAdamW, uint64_t data_seed = 0) {
    TinyStackOptions options;
    options.width = kWidth;
    options.inner = kWidth;
    options.tied = true;
    options.frozen_bias = true;
    model_ = std::make_shared<TinyStack>(options);
    {
      const at::NoGradGuard no_grad;
      for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*model_)) {
        parameter.tensor.add_(seed);
      }
    }
    const auto mesh = Mesh::for_fsdp(world, ranks.fsdp);
    // The last block is tied to the root's own parameter and stays with it.
    for (size_t i = 0; i + 1 < model_->blocks.size(); ++i) {
      fsdp::fully_shard(model_->blocks[i], mesh, {});
    }
    root_ = fsdp::fully_shard(model_, mesh, {});
    optimizer_ = algorithm == Algorithm::kAdamW
                     ? std::shared_ptr<Optimizer>(make_adamw(root_, {1e-2}))
                     : std::shared_ptr<Optimizer>(make_sgd(root_, {1e-3, 0.9}));
    StepOptions step;
    step.loss_scaling = LossScalerOptions{};
    step_.emplace(model_, optimizer_, step);
    DataLoaderOptions loading;
    loading.rank = world->rank();
    loading.world_size = world->size();
    loading.batch_size = 1;
    loading.sequence_length = 4;
    loading.order = DataOrder::kShuffle;
    loading.seed = data_seed;
    loader_.emplace(std::make_shared<TokenFile>(tokens, 256, TokenFormat::kBytes), loading);
    saver_.emplace(root_->shared_mesh());
  }

  fsdp::Unit& root() { return *root_; }
  Optimizer& optimizer() { return *optimizer_; }
  TrainStep& step() { return *step_; }
  ckpt::ShardedSaver& saver() { return *saver_; }
  const DataLoader& loader() const { return *loader_; }

  TrainingObjects objects() {
    TrainingObjects objects;
    objects.root = root_.get();
    objects.optimizer = optimizer_.get();
    objects.step = &*step_;
    objects.loader = &*loader_;
    return objects;
  }

  // Losses of this rank. The batch follows from the data and from the random generator.
  std::vector<double> train(int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const TokenBatch batch = loader_->next();
      const at::Tensor x =
          (batch.inputs.to(at::kFloat).view({-1, 1}) / 256.0).expand({-1, kWidth}).contiguous();
      const at::Tensor loss = (*model_)(x).square().sum() / 10.0;
      loss.backward();
      optimizer_->step();
      optimizer_->zero_grad();
      step_->set_position(step_->position() + 1);
      losses.push_back(loss.item<double>());
    }
    return losses;
  }

 private:
  std::shared_ptr<TinyStack> model_;
  std::shared_ptr<fsdp::Unit> root_;
  std::shared_ptr<Optimizer> optimizer_;
  std::optional<TrainStep> step_;
  std::optional<DataLoader> loader_;
  std::optional<ckpt::ShardedSaver> saver_;
};

// All tensors of the model and the optimizer in a checkpoint.
std::map<std::string, at::Tensor> tensors_in(const std::string& path) {
  std::map<std::string, at::Tensor> tensors;
  const auto source = ckpt::open_checkpoint(path);
  for (const ckpt::StateEntry& entry : source->entries()) {
    if (entry.dtype && entry.name.rfind("fsdp2.", 0) != 0) {
      at::Tensor tensor = at::empty(entry.shape, *entry.dtype);
      source->read(entry, std::vector<int64_t>(entry.shape.size(), 0), tensor);
      tensors.emplace(entry.name, tensor);
    }
  }
  return tensors;
}

void expect_equal(const std::map<std::string, at::Tensor>& a,
                  const std::map<std::string, at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    ASSERT_EQ(b.count(name), 1u) << name;
    EXPECT_TRUE(at::equal(tensor, b.at(name))) << name;
  }
}

class TrainingState : public FileTest {
 protected:
  TrainingState() { write("tokens", std::string(1000, 'x') + "The quick brown fox"); }
  std::string tokens() const { return path("tokens"); }
};

TEST_F(TrainingState, GoesFromAnyNumberOfRanksToAnyOther) {
  for (const Ranks& from : kAllRanks) {
    const std::string saved = path("from-" + from.name());
    run_ranks(from.world, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, from, tokens());
      run.train(3);
      run.saver().save(state_to_save(run.objects()), {saved});
    });
    const auto expected = tensors_in(saved);
    for (const Ranks& to : kAllRanks) {
      const std::string again = path("again");
      run_ranks(to.world, [&](const std::shared_ptr<World>& world) {
        TinyRun run(world, to, tokens(), /*seed=*/1.0);
        const LoadReport report = load_training_state(run.objects(), saved, /*partial=*/false);
        EXPECT_EQ(report.step, 3);
        EXPECT_EQ(run.step().position(), 3);
        run.saver().save(state_to_save(run.objects()), {again});
      });
      SCOPED_TRACE(from.name() + " to " + to.name());
      expect_equal(tensors_in(again), expected);
    }
  }
}

class ExactResume : public TrainingState, public testing::WithParamInterface<bool> {};

TEST_P(ExactResume, TheNextTenLossesAreTheSameToTheBit) {
  for (const Algorithm algorithm : {Algorithm::kAdamW, Algorithm::kSgd}) {
    for (const Ranks& ranks : {Ranks{1, 0}, Ranks{3, 0}, Ranks{4, 2}}) {
      std::vector<std::vector<double>> expected(static_cast<size_t>(ranks.world));
      run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
        TinyRun run(world, ranks, tokens(), 0.0, algorithm);
        run.train(3);
        const ckpt::StateDict state = state_to_save(run.objects());
        if (GetParam()) {
          run.saver().start(state, {path("run")});
        } else {
          run.saver().save(state, {path("run")});
        }
        // In the background the save is under way while training goes on.
        expected[static_cast<size_t>(world->rank())] = run.train(10);
        run.saver().wait();
      });
      run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
        TinyRun run(world, ranks, tokens(), 1.0, algorithm);
        load_training_state(run.objects(), path("run"), /*partial=*/false);
        EXPECT_EQ(run.loader().steps(), 3);
        EXPECT_EQ(run.train(10), expected[static_cast<size_t>(world->rank())]) << ranks.name();
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Saved, ExactResume, testing::Bool(), [](const auto& info) {
  return info.param ? "InTheBackground" : "InPlace";
});

TEST_F(TrainingState, TheRandomGeneratorGoesOn) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {1, 0}, tokens());
    at::rand({3});
    run.saver().save(state_to_save(run.objects()), {path("run")});
    const at::Tensor next = at::rand({3});
    load_training_state(run.objects(), path("run"), false);
    EXPECT_TRUE(at::equal(at::rand({3}), next));
  });
}

TEST_F(TrainingState, TheLossScaleGoesOn) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.step().loss_scaler()->set_state({512.0, 7});
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {2, 0}, tokens());
    load_training_state(other.objects(), path("run"), false);
    EXPECT_EQ(other.step().loss_scaler()->scale(), 512.0);
    EXPECT_EQ(other.step().loss_scaler()->state().growth_tracker, 7);
  });
}

TEST_F(TrainingState, EachParameterGroupHasItsOptionsAndItsNames) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    add_group(*run.objects().optimizer, {"scale"}, AdamWOptions{2e-2});
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {2, 0}, tokens());
    add_group(*other.objects().optimizer, {"scale"}, AdamWOptions{2e-2});
    other.objects().optimizer->set_lr(1.0);
    load_training_state(other.objects(), path("run"), false);
    EXPECT_EQ(other.objects().optimizer->lr(), 1e-2);
  });
  const auto source = ckpt::open_checkpoint(path("run"));
  const auto value = [&](const std::string& name) {
    const ckpt::StateEntry* entry = source->find("optim.param_groups." + name);
    return entry == nullptr ? ckpt::PythonValue() : source->read_object(*entry);
  };
  EXPECT_EQ(*value("0.lr").as<double>(), 1e-2);
  EXPECT_EQ(*value("1.lr").as<double>(), 2e-2);
  const ckpt::PythonValue names = value("1.params");
  ASSERT_NE(names.as<ckpt::PythonList>(), nullptr);
  ASSERT_EQ(names.as<ckpt::PythonList>()->items.size(), 1U);
  EXPECT_EQ(*names.as<ckpt::PythonList>()->items[0].as<std::string>(), "scale");
}

TEST_F(TrainingState, NamesThatDoNotFitAreErrorsAndAPartialLoadReportsThem) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    ckpt::StateDict state = state_to_save(run.objects());
    const auto is = [](const char* name) {
      return [name](const ckpt::StateTensor& tensor) { return tensor.name == name; };
    };
    auto& tensors = state.tensors;
    tensors.erase(std::remove_if(tensors.begin(), tensors.end(), is("model.scale")), tensors.end());
    state.add_whole({"model", "stranger"}, at::ones({2}));
    run.saver().save(state, {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(error.message().find("model.scale"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"model.scale"});
    EXPECT_EQ(report.unexpected, std::vector<std::string>{"model.stranger"});
  });
}

// The state of a run under other names, as other trainers write it: tensors and, of the objects,
// what is under "optim".
template <typename Rename>
ckpt::StateDict renamed(const ckpt::StateDict& state, const Rename& rename) {
  ckpt::StateDict out;
  for (const ckpt::StateTensor& tensor : state.tensors) {
    if (tensor.name.rfind("fsdp2.", 0) != 0) {
      out.add_tensor(rename(tensor.path), tensor.shape, tensor.offsets, tensor.local);
    }
  }
  for (const ckpt::StateObject& object : state.objects) {
    if (object.name.rfind("optim.", 0) == 0) {
      out.add_object(rename(object.path), object.value);
    }
  }
  return out;
}

// The model at the top, the optimizer under another name.
ckpt::StatePath beside_the_model(ckpt::StatePath path) {
  if (path[0] == ckpt::PathPart(std::string("model"))) {
    return {path[1]};
  }
  const auto* flat = std::get_if<std::string>(&path.back());
  if (path.size() == 2 && flat != nullptr) {
    return {"optimizer." + *flat};
  }
  path[0] = std::string("optimizer");
  return path;
}

TEST_F(TrainingState, OfTorchtitanIsRead) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    const ckpt::StateDict state = state_to_save(run.objects());
    run.saver().save(state, {path("ours")});
    // All flat, optimizer keys by parameter; what else its trainer keeps, tensors among it.
    ckpt::StateDict theirs =
        renamed(state_to_save(run.objects(), OptimizerKeys::kByParameter), beside_the_model);
    theirs.add_whole({"train_state", "step"}, at::scalar_tensor(2, at::kInt));
    theirs.add_whole({"train_state", "ntokens_seen"}, at::scalar_tensor(64, at::kLong));
    theirs.add_object({"train_state", "log_steps"}, ckpt::PythonList{{1, 2}});
    theirs.add_object({"lr_scheduler", "last_epoch"}, 2);
    theirs.add_object({"dataloader", "dp_rank_0"}, "bytes");
    run.saver().save(theirs, {path("theirs")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    const LoadReport report = load_training_state(other.objects(), path("theirs"), false);
    EXPECT_EQ(report.step, 2);
    EXPECT_EQ(report.missing, (std::vector<std::string>{"fsdp2.data", "fsdp2.rng"}));
    EXPECT_EQ(other.step().position(), 2);
    EXPECT_EQ(other.loader().steps(), 2);
    other.saver().save(state_to_save(other.objects()), {path("again")});
  });
  expect_equal(tensors_in(path("again")), tensors_in(path("ours")));
}

TEST_F(TrainingState, OfRollIsRead) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    const ckpt::StateDict state = state_to_save(run.objects());
    run.saver().save(state, {path("ours")});
    std::map<std::string, int64_t> numbers;
    ckpt::PythonList list;
    for (const fsdp::ShardedParam* param : run.root().parameters()) {
      list.items.emplace_back(static_cast<int64_t>(numbers.size()));
      numbers.emplace(param->name(), numbers.size());
    }
    ckpt::StateDict theirs = renamed(state, [&](const ckpt::StatePath& given) {
      ckpt::StatePath path = beside_the_model(given);
      if (path.size() == 4 && path[1] == ckpt::PathPart(std::string("state"))) {
        path[2] = numbers.at(std::get<std::string>(path[2]));
      }
      return path;
    });
    for (ckpt::StateObject& object : theirs.objects) {
      object.value = object.name == "optimizer.param_groups.0.params" ? list : object.value;
    }
    theirs.add_object({"scheduler", "last_epoch"}, 7);
    theirs.add_object({"scheduler", "base_lrs"}, ckpt::PythonList{{1e-2}});
    theirs.add_whole({"rng_state", "cpu"}, at::ones({5056}, at::kByte));
    theirs.add_object({"rng_state", "python"}, ckpt::PythonTuple{{3, ckpt::PythonTuple{{1, 2}}}});
    // Beside it the model alone, as transformers has it.
    std::filesystem::create_directories(path("theirs"));
    run.saver().save(theirs, {path("theirs/dcp")});
    ckpt::save_full_state_dict(run.root(), path("theirs/model.safetensors"),
                               ckpt::CheckpointFormat::kSafetensors, {});
    if (world->rank() == 0) {
      write("theirs/config.json", "{}");
    }
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    const LoadReport report = load_training_state(other.objects(), path("theirs"), false);
    EXPECT_EQ(report.step, 7);
    other.saver().save(state_to_save(other.objects()), {path("again")});
  });
  expect_equal(tensors_in(path("again")), tensors_in(path("ours")));
}

// Keeps of a state what is wanted.
template <typename Wanted>
ckpt::StateDict only(ckpt::StateDict state, const Wanted& wanted) {
  const auto drop = [&](auto& list) {
    const auto is_unwanted = [&](const auto& entry) { return !wanted(entry.name); };
    list.erase(std::remove_if(list.begin(), list.end(), is_unwanted), list.end());
  };
  drop(state.tensors);
  drop(state.objects);
  return state;
}

TEST_F(TrainingState, ThatSaysNoStepHasTheOneThatTheOptimizerCounted) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(3);
    const auto wanted = [](const std::string& name) {
      return name.rfind("model.", 0) == 0 || name.rfind("optim.", 0) == 0;
    };
    run.saver().save(only(state_to_save(run.objects()), wanted), {path("run")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    EXPECT_EQ(load_training_state(other.objects(), path("run"), false).step, 3);
    EXPECT_EQ(other.loader().steps(), 3);
  });
}

TEST_F(TrainingState, WithAnOptimizerButNoStepIsAnErrorUnlessPartial) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kSgd);
    run.train(2);
    const auto wanted = [](const std::string& name) { return name != "step"; };
    run.saver().save(only(state_to_save(run.objects()), wanted), {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kNotFound);
    EXPECT_NE(error.message().find("missing keys: step"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.step, -1);
    EXPECT_EQ(report.missing, std::vector<std::string>{"step"});
  });
}

std::map<std::string, HyperParameter::Value> by_name(const Optimizer& optimizer, size_t group) {
  std::map<std::string, HyperParameter::Value> values;
  for (const HyperParameter& value : optimizer.hyper_parameters(group)) {
    values.emplace(value.name, value.value);
  }
  return values;
}

const std::vector<HyperParameter> kOtherValues = {
    {"lr", 0.125}, {"betas", std::pair(0.5, 0.75)}, {"eps", 1e-3}, {"weight_decay", 0.25}};

TEST_F(TrainingState, BringsBackTheHyperParametersOfEachGroup) {
  for (const OptimizerKeys keys : {OptimizerKeys::kByGroup, OptimizerKeys::kByParameter}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, {2, 0}, tokens());
      add_group(run.optimizer(), {"scale"}, AdamWOptions{2e-2, 0.9, 0.999, 1e-8, 0.0});
      run.optimizer().set_hyper_parameters(0, kOtherValues);
      run.saver().save(state_to_save(run.objects(), keys), {path("run")});
      TinyRun other(world, {2, 0}, tokens());
      add_group(other.optimizer(), {"scale"}, AdamWOptions{1e-3});
      load_training_state(other.objects(), path("run"), false);
      for (const size_t group : {0, 1}) {
        EXPECT_EQ(by_name(other.optimizer(), group), by_name(run.optimizer(), group)) << group;
      }
      EXPECT_EQ(other.optimizer().lr(), 0.125);
    });
  }
}

TEST_F(TrainingState, OfTwoGroupsThatDifferDoesNotGoIntoOneUnlessPartial) {
  for (const OptimizerKeys keys : {OptimizerKeys::kByGroup, OptimizerKeys::kByParameter}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun two(world, {2, 0}, tokens());
      add_group(two.optimizer(), {"scale"}, AdamWOptions{1e-2, 0.9, 0.999, 1e-8, 0.25});
      two.saver().save(state_to_save(two.objects(), keys), {path("two")});
      TinyRun one(world, {2, 0}, tokens());
      const auto before = by_name(one.optimizer(), 0);
      const Error error = error_of([&] { load_training_state(one.objects(), path("two"), false); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      // Which of the two is "here" goes by the order of names or of groups.
      EXPECT_NE(error.message().find("weight_decay is 0.01 here and 0.25 in optim.param_groups."),
                std::string::npos)
          << error.message();
      EXPECT_NE(error.message().find("in its group 0"), std::string::npos) << error.message();
      EXPECT_EQ(by_name(one.optimizer(), 0), before);
      const LoadReport report = load_training_state(one.objects(), path("two"), true);
      EXPECT_EQ(report.unexpected.size(), 1U);
      EXPECT_EQ(by_name(one.optimizer(), 0), before);
    });
  }
}

TEST_F(TrainingState, OfTwoGroupsThatAreAlikeGoesIntoOne) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun two(world, {2, 0}, tokens());
    add_group(two.optimizer(), {"scale"}, AdamWOptions{1e-2});
    for (const size_t group : {0, 1}) {
      two.optimizer().set_hyper_parameters(group, {{"weight_decay", 0.25}});
    }
    two.saver().save(state_to_save(two.objects()), {path("two")});
    TinyRun one(world, {2, 0}, tokens());
    load_training_state(one.objects(), path("two"), false);
    EXPECT_EQ(by_name(one.optimizer(), 0), by_name(two.optimizer(), 1));
  });
}

TEST_F(TrainingState, MomentumOfTheCheckpointComesWithItsBuffers) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kSgd);
    run.train(3);
    run.saver().save(state_to_save(run.objects()), {path("run")});
    const std::vector<double> expected = run.train(5);
    TinyRun other(world, {2, 0}, tokens(), 1.0, Algorithm::kSgd);
    other.optimizer().set_hyper_parameters(0, {{"momentum", 0.0}});
    load_training_state(other.objects(), path("run"), false);
    EXPECT_EQ(other.train(5), expected);
  });
}

TEST_F(TrainingState, OfAnAlgorithmThatIsNotProvidedIsAnErrorThatChangesNothing) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    const auto before = by_name(run.optimizer(), 0);
    TinyRun other(world, {2, 0}, tokens());
    other.optimizer().set_hyper_parameters(0, kOtherValues);
    ckpt::StateDict state = state_to_save(other.objects());
    for (ckpt::StateObject& object : state.objects) {
      object.value = object.name == "optim.param_groups.0.amsgrad" ? true : object.value;
    }
    run.saver().save(state, {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kUnsupported);
    EXPECT_NE(error.message().find("optim.param_groups.0: amsgrad"), std::string::npos)
        << error.message();
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
    const LoadReport report = load_training_state(run.objects(), path("run"), true);
    EXPECT_EQ(report.unexpected, std::vector<std::string>{"optim.param_groups.0"});
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
  });
}

TEST_F(TrainingState, LoadThatFailsLeavesTheHyperParameters) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    TinyRun other(world, {2, 0}, tokens());
    other.optimizer().set_hyper_parameters(0, kOtherValues);
    ckpt::StateDict state = state_to_save(other.objects());
    state.add_whole({"model", "stranger"}, at::ones({2}));
    run.saver().save(state, {path("run")});
    const auto before = by_name(run.optimizer(), 0);
    EXPECT_THROW(load_training_state(run.objects(), path("run"), false), Error);
    EXPECT_EQ(by_name(run.optimizer(), 0), before);
  });
}

TEST_F(TrainingState, OfDataInAnotherOrderIsAnErrorUnlessPartial) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens(), 0.0, Algorithm::kAdamW, /*data_seed=*/42);
    run.train(2);
    run.saver().save(state_to_save(run.objects()), {path("run")});
    TinyRun other(world, {2, 0}, tokens(), 0.0, Algorithm::kAdamW, /*data_seed=*/7);
    const Error error = error_of([&] { load_training_state(other.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("shuffled with seed 7"), std::string::npos) << error.message();
    EXPECT_NE(error.message().find("shuffled with seed 42"), std::string::npos) << error.message();
    const LoadReport report = load_training_state(other.objects(), path("run"), true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"fsdp2.data"});
    EXPECT_EQ(other.loader().steps(), 2);
  });
}

// What rank 0 says, on all ranks.
std::string from_rank_0(World& world, const std::string& text) {
  const at::Tensor bytes = at::zeros({4096}, at::kByte);
  if (world.rank() == 0) {
    std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  }
  world.control().broadcast(bytes, 0).wait();
  return reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
}

// Processes: threads share one generator.
TEST_F(TrainingState, TheRandomGeneratorOfEveryRankGoesOn) {
  run_rank_processes(3, [&](const std::shared_ptr<World>& world) {
    const std::string saved = from_rank_0(*world, path("run"));
    TinyRun run(world, {3, 0}, tokens());
    at::manual_seed(static_cast<uint64_t>(100 + world->rank()));
    at::rand({world->rank() + 1});
    run.saver().save(state_to_save(run.objects()), {saved});
    const at::Tensor next = at::rand({3});
    at::manual_seed(1);
    load_training_state(run.objects(), saved, false);
    EXPECT_TRUE(at::equal(at::rand({3}), next)) << world->rank();
    const auto source = ckpt::open_checkpoint(saved);
    const auto state_of = [&](int rank) {
      return ckpt::read_whole(*source, *source->find("fsdp2.rng." + std::to_string(rank)));
    };
    EXPECT_FALSE(at::equal(state_of(0), state_of(1)));
    EXPECT_FALSE(at::equal(state_of(1), state_of(2)));
    world->control().barrier();  // the directory goes when rank 0 ends
  });
}

TEST_F(TrainingState, FullAndPerRankFilesBringTheModelBack) {
  std::map<std::string, at::Tensor> expected;
  run_ranks(3, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {3, 0}, tokens());
    run.train(2);
    run.saver().save(state_to_save(run.objects()), {path("dcp")});
    ckpt::save_full_state_dict(run.root(), path("model.safetensors"),
                               ckpt::CheckpointFormat::kSafetensors, {});
    ckpt::save_full_state_dict(run.root(), path("fsdp_cpt2.pth"), ckpt::CheckpointFormat::kPth, {});
    ckpt::save_per_rank(run.root(), path("ranks"), 2);
  });
  EXPECT_TRUE(std::filesystem::exists(path("ranks/fsdp_sharded_cpt2_rank2.pth")));
  for (const char* name : {"model.safetensors", "fsdp_cpt2.pth", "ranks"}) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, {2, 0}, tokens(), 1.0);
      TrainingObjects model;
      model.root = &run.root();
      load_training_state(model, path(name), false);
      run.saver().save(state_to_save(model), {path("again")});
    });
    SCOPED_TRACE(name);
    const auto all = tensors_in(path("dcp"));
    for (const auto& [key, tensor] : tensors_in(path("again"))) {
      EXPECT_TRUE(at::equal(tensor, all.at(key))) << key;
    }
  }
}

}  // namespace
}  // namespace fsdp2::train
