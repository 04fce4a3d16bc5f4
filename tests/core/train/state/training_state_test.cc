// A run that is saved and loaded goes on as if it had never stopped, at any world size.
#include "core/train/state/training_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

const std::vector<Ranks> kAllRanks = {{1, 0}, {2, 0}, {3, 0}, {4, 0}, {4, 2}};

class Resharding : public TrainingState, public testing::WithParamInterface<Algorithm> {};

TEST_P(Resharding, GoesFromAnyNumberOfRanksToAnyOther) {
  for (const Ranks& from : kAllRanks) {
    const std::string saved = path("from-" + from.name());
    run_ranks(from.world, [&](const std::shared_ptr<World>& world) {
      TinyRun run(world, from, tokens(), 0.0, GetParam());
      run.train(3);
      run.saver().save(state_to_save(run.objects()), {saved});
    });
    const auto expected = tensors_in(saved);
    for (const Ranks& to : kAllRanks) {
      const std::string again = path("again");
      run_ranks(to.world, [&](const std::shared_ptr<World>& world) {
        TinyRun run(world, to, tokens(), /*seed=*/1.0, GetParam());
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

INSTANTIATE_TEST_SUITE_P(Of, Resharding, testing::Values(Algorithm::kAdamW, Algorithm::kMuon),
                         [](const auto& info) {
                           return info.param == Algorithm::kMuon ? "Muon" : "AdamW";
                         });

class ExactResume : public TrainingState, public testing::WithParamInterface<bool> {};

TEST_P(ExactResume, TheNextTenLossesAreTheSameToTheBit) {
  for (const Algorithm algorithm : {Algorithm::kAdamW, Algorithm::kSgd, Algorithm::kMuon}) {
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

TEST_F(TrainingState, WhatIsNoStateOfAGeneratorIsCorrupt) {
  run_ranks(1, [&](const std::shared_ptr<World>& world) {
    TinyRun run(world, {1, 0}, tokens());
    TrainingObjects objects = run.objects();
    objects.rng = false;
    ckpt::StateDict state = state_to_save(objects);
    const int64_t bytes = at::detail::getDefaultCPUGenerator().get_state().numel();
    state.add_tensor({"fsdp2", "rng", "0"}, {bytes}, {0}, at::full({bytes}, 0xff, at::kByte));
    run.saver().save(state, {path("run")});
    const Error error = error_of([&] { load_training_state(run.objects(), path("run"), false); });
    EXPECT_EQ(error.code(), Code::kCorruptData);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("fsdp2.rng.0: no random generator"));
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
