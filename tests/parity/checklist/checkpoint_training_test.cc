// Checklist, checkpoints of training: CKP-16 to CKP-19, CKP-22 and ASY-1. Adam is AdamW without
// decay, as everywhere in this library.
#include <ATen/CPUGeneratorImpl.h>

#include <map>

#include "core/ckpt/formats/convert.h"
#include "core/train/optim/adamw.h"
#include "core/train/state/training_state.h"
#include "tests/core/base/file_fixture.h"
#include "tests/parity/checklist/checkpoint_layout.h"

namespace fsdp2::checklist {
namespace {

using train::TrainingObjects;

class ChecklistCkpTraining : public FileTest {};

constexpr train::AdamWOptions kAdam{0.1, 0.9, 0.999, 1e-8, 0.0};

// A model that is one group, and its optimizer.
struct TrainingRun {
  TrainingRun(const std::shared_ptr<Sequence>& model_in, const MeshPtr& mesh,
              const train::AdamWOptions& options = kAdam)
      : model(model_in),
        root(fsdp::fully_shard(model, mesh, policy_unset())),
        optimizer(train::make_adamw(root, options)) {}

  // The loss of a step, which does not die with the last ReLU.
  double step(int number, int rank) {
    const at::Tensor loss = loss_of(*model, number, rank);
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    return loss.item<double>();
  }
  static at::Tensor loss_of(nn::Module& module, int number, int rank) {
    const int64_t width = find_parameter(module, "0.weight").size(1);
    return (module(random_input({4, width}, number, rank)) - 1).square().sum();
  }

  TrainingObjects objects() const {
    TrainingObjects objects;
    objects.root = root.get();
    objects.optimizer = optimizer.get();
    return objects;
  }

  // The local parts of parameters and optimizer, and the optimizer's values, by name.
  std::map<std::string, at::Tensor> local_parts() const {
    std::map<std::string, at::Tensor> parts;
    for (const ckpt::StateTensor& tensor : state().tensors) {
      parts[tensor.name] = tensor.local.clone();
    }
    return parts;
  }
  StateDict state() const {
    TrainingObjects without_rng = objects();
    without_rng.rng = false;
    return train::state_to_save(without_rng);
  }

  std::shared_ptr<Sequence> model;
  UnitPtr root;
  std::shared_ptr<train::Optimizer> optimizer;
};

void expect_same_parts(const std::map<std::string, at::Tensor>& actual,
                       const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(actual.count(name), 1U) << name;
    EXPECT_TRUE(actual.at(name).equal(tensor)) << name;
  }
}

std::shared_ptr<Sequence> linears(const std::vector<int64_t>& sizes, uint64_t values) {
  // With a ReLU behind the last, too.
  const auto inner = make_linears(sizes);
  std::vector<ModulePtr> items = inner->items;
  items.push_back(std::make_shared<Relu>());
  return seed(std::make_shared<Sequence>(items), values);
}

TEST_F(ChecklistCkpTraining, CKP16_AFreshOptimizerGetsTheStateOfTheSavedOne) {
  run_ranks(4, [&](const WorldPtr& world) {
    TrainingRun saved(linears({8, 4, 8, 12}, 1), flat_mesh(world));
    saved.step(0, world->rank());
    save_state(world, saved.state(), {path("run")});
    const TrainingRun fresh(linears({8, 4, 8, 12}, 2), flat_mesh(world));
    train::load_training_state(fresh.objects(), path("run"), /*partial=*/false);
    expect_same_parts(fresh.local_parts(), saved.local_parts());
    for (size_t i = 0; i < fresh.optimizer->params().size(); ++i) {
      for (const train::OptimizerState& slot : fresh.optimizer->state(i)) {
        EXPECT_TRUE(!slot.is_sharded ||
                    slot.tensor.sizes() == fresh.optimizer->params()[i]->local_values().sizes());
      }
    }
  });
}

TEST_F(ChecklistCkpTraining, CKP17_HybridRunsGoBackToTheirCheckpoint) {
  run_ranks(4, [&](const WorldPtr& world) {
    for (const auto& model : {make_simple_even(), make_simple_uneven()}) {
      TrainingRun run(seed(model), hybrid_mesh(world, 2),
                      {0.1});  // decay moves what has no gradient
      run.step(0, world->rank());
      save_state(world, run.state(), {path("run")});
      const auto before = run.local_parts();
      run.step(1, world->rank());
      for (const auto& [name, part] : run.local_parts()) {
        const bool is_parameter = name.rfind("model.", 0) == 0;
        EXPECT_TRUE(!is_parameter || part.numel() == 0 || !part.equal(before.at(name))) << name;
      }
      train::load_training_state(run.objects(), path("run"), /*partial=*/false);
      expect_same_parts(run.local_parts(), before);
      for (const fsdp::ShardedParam* param : run.root->parameters()) {
        EXPECT_EQ(param->layout().world, 2);
        EXPECT_EQ(param->layout().dim, 0);
      }
    }
  });
}

TEST_F(ChecklistCkpTraining, CKP18_ADirectoryBecomesOneFileAndAFileADirectory) {
  run_ranks(2, [&](const WorldPtr& world) {
    TrainingRun run(seed(make_simple_uneven()), flat_mesh(world));
    run.step(0, world->rank());
    save_state(world, run.state(), {path("run")});
    world->control().barrier();
    if (world->rank() == 0) {
      ckpt::ConvertOptions to_file;
      to_file.format = ckpt::CheckpointFormat::kPth;
      ckpt::convert_checkpoint(path("run"), path("full.pth"), to_file);
      ckpt::convert_checkpoint(path("full.pth"), path("again"), {});
    }
    world->control().barrier();
    for (const char* name : {"full.pth", "again"}) {
      SCOPED_TRACE(name);
      const TrainingRun loaded(seed(make_simple_uneven(), 7), flat_mesh(world));
      train::load_training_state(loaded.objects(), path(name), /*partial=*/false);
      expect_same_parts(loaded.local_parts(), run.local_parts());
    }
  });
}

// What a train loop keeps beside model and optimizer.
struct Counters {
  at::Tensor free = at::zeros({10, 10});
  int64_t step = 0;
  std::vector<double> losses;

  void count(double loss) {
    ++step;
    losses.push_back(loss);
  }
  // Shares `free`'s memory.
  StateDict state() const {
    ckpt::PythonList list;
    for (const double loss : losses) {
      list.items.emplace_back(loss);
    }
    StateDict state;
    state.add_whole({"free"}, free);
    state.add_object({"train", "step_count"}, step);
    state.add_object({"train", "last_loss"}, losses.empty() ? 0.0 : losses.back());
    state.add_object({"train", "losses"}, std::move(list));
    return state;
  }
  void set(const StateDict& state) {
    step = *state.objects[0].value.as<int64_t>();
    losses.clear();
    for (const ckpt::PythonValue& loss : state.objects[2].value.as<ckpt::PythonList>()->items) {
      losses.push_back(*loss.as<double>());
    }
  }
};

const std::vector<int64_t> kFourLinears = {8, 16, 32, 64, 8};

// The mean loss over the ranks of each of three steps of an unsharded run.
std::vector<double> plain_losses(int world) {
  const auto model = linears(kFourLinears, 1);
  PlainOptimizer optimizer(trainable_parameters(*model), Rule::kAdam, 0.1);
  std::vector<double> means;
  for (int step = 0; step < 3; ++step) {
    double sum = 0;
    for (const double loss : averaged_backward(*model, world, [&](nn::Module& module, int rank) {
           return TrainingRun::loss_of(module, step, rank);
         })) {
      sum += loss;
    }
    means.push_back(sum / world);
    optimizer.step();
    optimizer.zero_grad();
  }
  return means;
}

double mean_over_ranks(const WorldPtr& world, double loss) {
  at::Tensor all = at::zeros({world->size()}, at::kDouble);
  world->control().all_gather(all, at::full({1}, loss, at::kDouble)).wait();
  return all.mean().item<double>();
}

// Two steps, a save, a fresh run that loads it, a third step, which is the plain run's.
void expect_resumed(const WorldPtr& world, const std::string& path, bool in_background) {
  const std::vector<double> plain = plain_losses(world->size());
  TrainingRun run(linears(kFourLinears, 1), flat_mesh(world));
  Counters counters;
  counters.free.normal_(0, 1, at::make_generator<at::CPUGeneratorImpl>(5));
  for (int step = 0; step < 2; ++step) {
    counters.count(mean_over_ranks(world, run.step(step, world->rank())));
  }
  StateDict all = run.state();
  const StateDict extra = counters.state();
  all.tensors.insert(all.tensors.end(), extra.tensors.begin(), extra.tensors.end());
  all.objects.insert(all.objects.end(), extra.objects.begin(), extra.objects.end());
  ckpt::ShardedSaver saver(flat_mesh(world));
  const at::Tensor free = counters.free.clone();
  if (in_background) {
    saver.start(all, {path});
    counters.free.zero_();  // training goes on while the save is under way
    run.step(2, world->rank());
    saver.wait();
    EXPECT_TRUE(saver.poll());
  } else {
    saver.save(all, {path});
  }

  TrainingRun fresh(linears(kFourLinears, 9), flat_mesh(world));
  train::load_training_state(fresh.objects(), path, /*partial=*/false);
  Counters loaded;
  StateDict wanted = loaded.state();
  ckpt::load_state(*world, path, &wanted);
  loaded.set(wanted);
  EXPECT_TRUE(loaded.free.equal(free));
  EXPECT_EQ(loaded.step, 2);
  EXPECT_EQ(loaded.losses, counters.losses);
  EXPECT_EQ(*wanted.objects[1].value.as<double>(), counters.losses.back());
  loaded.count(mean_over_ranks(world, fresh.step(2, world->rank())));
  for (size_t step = 0; step < plain.size(); ++step) {
    EXPECT_GT(plain[step], 0.0);
    expect_close(loaded.losses[step], plain[step], kT32, fmt::format("loss of step {}", step));
  }
}

TEST_F(ChecklistCkpTraining, CKP19_AFreshRunGoesOnLikeThePlainOne) {
  run_ranks(4, [&](const WorldPtr& world) {
    expect_resumed(world, path("run"), /*in_background=*/false);
  });
}

TEST_F(ChecklistCkpTraining, ASY1_AFreshRunGoesOnFromASaveInTheBackground) {
  run_ranks(4, [&](const WorldPtr& world) {
    expect_resumed(world, path("run"), /*in_background=*/true);
  });
}

TEST_F(ChecklistCkpTraining, CKP22_TheLearningRateOfTheCheckpointIsTakenInPlace) {
  run_ranks(2, [&](const WorldPtr& world) {
    TrainingRun saved(seed(make_simple_even()), flat_mesh(world));
    saved.step(0, world->rank());
    save_state(world, saved.state(), {path("run")});
    train::AdamWOptions faster = kAdam;
    faster.lr = 0.2;
    const TrainingRun loaded(seed(make_simple_even(), 7), flat_mesh(world), faster);
    const StateDict state = loaded.state();  // taken before, filled in place
    train::load_training_state(loaded.objects(), path("run"), /*partial=*/false);
    EXPECT_EQ(loaded.optimizer->lr(), 0.1);
    const StateDict expected = saved.state();
    ASSERT_EQ(state.tensors.size(), expected.tensors.size());
    for (size_t i = 0; i < state.tensors.size(); ++i) {
      EXPECT_TRUE(state.tensors[i].local.equal(expected.tensors[i].local)) << state.tensors[i].name;
    }
  });
}

}  // namespace
}  // namespace fsdp2::checklist
