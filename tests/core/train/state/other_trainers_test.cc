// Checkpoints that other trainers have written.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/pth_file.h"
#include "core/train/state/training_state.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

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

// "model" or "optim" and what is below it, in another place.
ckpt::StatePath moved(const ckpt::StatePath& path, const ckpt::StatePath& model,
                      const ckpt::StatePath& optimizer) {
  const bool is_model = path[0] == ckpt::PathPart(std::string("model"));
  ckpt::StatePath to = is_model ? model : optimizer;
  to.insert(to.end(), path.begin() + 1, path.end());
  return to;
}

void prefix_text(const std::string& prefix, ckpt::PathPart* part) {
  std::get<std::string>(*part).insert(0, prefix);
}

TEST_F(TrainingState, OfLightningIsRead) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    const ckpt::StateDict state = state_to_save(run.objects());
    run.saver().save(state, {path("ours")});
    // The model is the attribute "net" of a module, whose names the optimizer has as well.
    ckpt::StateDict theirs = renamed(state, [](const ckpt::StatePath& given) {
      ckpt::StatePath path =
          moved(given, {std::string("state_dict")}, {std::string("optimizer_0")});
      const bool is_state = path[1] == ckpt::PathPart(std::string("state"));
      if (path.size() == 2 || is_state) {
        prefix_text("net.", &path[is_state ? 2 : 1]);
      }
      return path;
    });
    for (ckpt::StateObject& object : theirs.objects) {
      if (object.name == "optimizer_0.param_groups.0.params") {
        for (ckpt::PythonValue& name : object.value.as<ckpt::PythonList>()->items) {
          name = "net." + *name.as<std::string>();
        }
      }
      if (object.name == "optimizer_0.param_groups.0.weight_decay") {
        object.value = 0.5;
      }
    }
    run.saver().save(theirs, {path("theirs")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    const LoadReport report = load_training_state(other.objects(), path("theirs"), false);
    EXPECT_EQ(report.step, 2);  // the optimizer's
    for (const HyperParameter& hyper : other.optimizer().hyper_parameters(0)) {
      if (hyper.name == "weight_decay") {
        EXPECT_EQ(hyper.value, HyperParameter::Value(0.5));
      }
    }
    other.saver().save(state_to_save(other.objects()), {path("again")});
  });
  expect_equal(tensors_in(path("again")), tensors_in(path("ours")));
}

TEST_F(TrainingState, OfAccelerateIsRead) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    const ckpt::StateDict state = state_to_save(run.objects());
    run.saver().save(state, {path("ours")});
    const ckpt::StateDict theirs = renamed(state, [](const ckpt::StatePath& given) {
      return moved(given, {std::string("model")}, {std::string("optimizer")});
    });
    std::filesystem::create_directories(path("theirs"));
    const auto begins = [](const char* start) {
      return [start](const std::string& name) { return name.rfind(start, 0) == 0; };
    };
    run.saver().save(only(theirs, begins("model.")), {path("theirs/pytorch_model_fsdp_0")});
    run.saver().save(only(theirs, begins("optimizer.")), {path("theirs/optimizer_0")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    EXPECT_EQ(load_training_state(other.objects(), path("theirs"), false).step, 2);
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

// In a plain number, in a tensor of integers, or in one that has a dim.
TEST_F(TrainingState, ThatCountsStepsInAnotherWayIsRead) {
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    const ckpt::StateDict state = state_to_save(run.objects());
    run.saver().save(state, {path("ours")});
    ckpt::StateDict theirs;
    theirs.objects = state.objects;
    size_t counters = 0;
    for (const ckpt::StateTensor& tensor : state.tensors) {
      const bool is_counter = tensor.path.back() == ckpt::PathPart(std::string("step"));
      const size_t way = is_counter ? counters++ % 4 : 0;
      if (!is_counter || way == 3) {
        theirs.add_tensor(tensor.path, tensor.shape, tensor.offsets, tensor.local);
      } else if (way == 0) {
        theirs.add_object(tensor.path, 2);
      } else {
        theirs.add_whole(tensor.path,
                         way == 1 ? at::scalar_tensor(2, at::kLong) : at::full({1}, 2, at::kFloat));
      }
    }
    ASSERT_GE(counters, 4U);
    run.saver().save(theirs, {path("theirs")});
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    EXPECT_EQ(load_training_state(other.objects(), path("theirs"), false).step, 2);
    other.saver().save(state_to_save(other.objects()), {path("again")});
  });
  expect_equal(tensors_in(path("again")), tensors_in(path("ours")));
}

// Matrices decay, and are listed first, by number.
struct TrainerGroups {
  std::vector<std::string> matrices;
  std::vector<std::string> vectors;
};

TrainerGroups trainer_groups(const Optimizer& optimizer) {
  TrainerGroups groups;
  for (const fsdp::ShardedParam* param : optimizer.params()) {
    const bool is_matrix = param->layout().global_shape.size() > 1;
    (is_matrix ? groups.matrices : groups.vectors).push_back(param->name());
  }
  return groups;
}

// What optimizer.state_dict() has of these tensors.
std::string trainer_optimizer(const std::map<std::string, at::Tensor>& saved,
                              const TrainerGroups& groups) {
  ckpt::PythonDict state;
  std::vector<at::Tensor> tensors;
  ckpt::PythonList saved_groups;
  int64_t number = 0;
  const auto stored = [&](const at::Tensor& tensor) {
    tensors.push_back(tensor);
    return ckpt::describe_tensor(static_cast<int64_t>(tensors.size()) - 1, tensor.scalar_type(),
                                 tensor.sizes().vec());
  };
  for (const auto& [names, decay] : {std::pair(groups.matrices, 0.25), {groups.vectors, 0.0}}) {
    ckpt::PythonList numbers;
    for (const std::string& name : names) {
      const std::string start = "optim.state." + name + ".";
      state.items.push_back(
          {number, ckpt::PythonDict{{{"step", stored(saved.at(start + "step"))},
                                     {"exp_avg", stored(saved.at(start + "exp_avg"))},
                                     {"exp_avg_sq", stored(saved.at(start + "exp_avg_sq"))}}}});
      numbers.items.emplace_back(number++);
    }
    saved_groups.items.emplace_back(
        ckpt::PythonDict{{{"weight_decay", decay}, {"name", "a group"}, {"params", numbers}}});
  }
  return ckpt::write_torch_archive(
      ckpt::PythonDict{{{"state", state}, {"param_groups", saved_groups}}}, tensors);
}

double weight_decay(const Optimizer& optimizer, size_t group) {
  for (const HyperParameter& hyper : optimizer.hyper_parameters(group)) {
    if (hyper.name == "weight_decay") {
      return std::get<double>(hyper.value);
    }
  }
  return -1;
}

TEST_F(TrainingState, OfTransformersTrainerIsRead) {
  std::filesystem::create_directories(path("theirs"));
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {2, 0}, tokens());
    run.train(2);
    run.saver().save(state_to_save(run.objects()), {path("ours")});
    ckpt::save_full_state_dict(run.root(), path("theirs/model.safetensors"),
                               ckpt::CheckpointFormat::kSafetensors, {});
    if (world->rank() == 0) {
      write("theirs/optimizer.pt",
            trainer_optimizer(tensors_in(path("ours")), trainer_groups(run.optimizer())));
    }
  });
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    TinyRun other(world, {2, 0}, tokens(), 1.0);
    add_group(other.optimizer(), trainer_groups(other.optimizer()).vectors, AdamWOptions{1e-2});
    EXPECT_EQ(load_training_state(other.objects(), path("theirs"), false).step, 2);
    EXPECT_EQ(weight_decay(other.optimizer(), 0), 0.25);
    EXPECT_EQ(weight_decay(other.optimizer(), 1), 0.0);
    other.saver().save(state_to_save(other.objects()), {path("again")});
  });
  expect_equal(tensors_in(path("again")), tensors_in(path("ours")));
}

}  // namespace
}  // namespace fsdp2::train
