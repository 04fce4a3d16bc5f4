// Checkpoints of AdamW with moments in bf16: a run goes on from them to the bit, at any number of
// ranks, and from those of a run with moments in fp32, and such a run from them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/train/state/training_state.h"
#include "tests/core/train/state/tiny_run.h"
#include "tests/support/ranks.h"

namespace fsdp2::train {
namespace {

class Bf16MomentsState : public TrainingState {
 protected:
  // A run whose moments are in this dtype.
  TinyRun run_of(const std::shared_ptr<World>& world, const Ranks& ranks, at::ScalarType dtype,
                 double seed = 0.0) const {
    return {world, ranks, tokens(), seed, Algorithm::kAdamW, 0, dtype};
  }

  // Three steps of such a run, saved.
  void save(const std::string& name, at::ScalarType dtype) {
    run_ranks(2, [&](const std::shared_ptr<World>& world) {
      TinyRun run = run_of(world, {2, 0}, dtype);
      run.train(3);
      run.saver().save(state_to_save(run.objects()), {path(name)});
    });
  }

  // What a run in this dtype on so many ranks has when it has loaded that.
  std::map<std::string, at::Tensor> loaded(const std::string& name, at::ScalarType dtype,
                                           int ranks) {
    run_ranks(ranks, [&](const std::shared_ptr<World>& world) {
      TinyRun run = run_of(world, {ranks, 0}, dtype, /*seed=*/1.0);
      load_training_state(run.objects(), path(name), /*partial=*/false);
      run.saver().save(state_to_save(run.objects()), {path("again")});
    });
    return tensors_in(path("again"));
  }
};

bool is_moment(const std::string& name) { return name.find(".exp_avg") != std::string::npos; }

TEST_F(Bf16MomentsState, TheNextTenLossesAreTheSameToTheBit) {
  for (const Ranks& ranks : {Ranks{1, 0}, Ranks{3, 0}, Ranks{4, 2}}) {
    std::vector<std::vector<double>> expected(static_cast<size_t>(ranks.world));
    std::map<std::string, at::Tensor> tensors;
    run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
      TinyRun run = run_of(world, ranks, at::kBFloat16);
      run.train(3);
      run.saver().save(state_to_save(run.objects()), {path("run")});
      expected[static_cast<size_t>(world->rank())] = run.train(10);
      run.saver().save(state_to_save(run.objects()), {path("end")});
    });
    run_ranks(ranks.world, [&](const std::shared_ptr<World>& world) {
      TinyRun run = run_of(world, ranks, at::kBFloat16, 1.0);
      load_training_state(run.objects(), path("run"), /*partial=*/false);
      EXPECT_EQ(run.train(10), expected[static_cast<size_t>(world->rank())]) << ranks.name();
      run.saver().save(state_to_save(run.objects()), {path("resumed")});
    });
    expect_equal(tensors_in(path("resumed")), tensors_in(path("end")));
  }
}

TEST_F(Bf16MomentsState, AreSavedInTheirDtypeAndLoadedByAnyNumberOfRanks) {
  save("bf16", at::kBFloat16);
  const auto saved = tensors_in(path("bf16"));
  int moments = 0;
  for (const auto& [name, tensor] : saved) {
    const bool is_one = is_moment(name);
    moments += is_one ? 1 : 0;
    EXPECT_EQ(tensor.scalar_type(), is_one ? at::kBFloat16 : at::kFloat) << name;
  }
  EXPECT_GT(moments, 0);
  for (const int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    expect_equal(loaded("bf16", at::kBFloat16, ranks), saved);
  }
}

TEST_F(Bf16MomentsState, TakeThoseInFp32RoundedToNearestAndGiveTheirsWidened) {
  save("fp32", at::kFloat);
  const auto wide = tensors_in(path("fp32"));
  const auto narrowed = loaded("fp32", at::kBFloat16, 3);
  bool has_rounded = false;
  ASSERT_EQ(narrowed.size(), wide.size());
  for (const auto& [name, tensor] : wide) {
    const at::Tensor expected = is_moment(name) ? tensor.to(at::kBFloat16) : tensor;
    EXPECT_TRUE(at::equal(narrowed.at(name), expected)) << name;
    has_rounded = has_rounded || !at::equal(expected.to(at::kFloat), tensor);
  }
  EXPECT_TRUE(has_rounded);
  save("bf16", at::kBFloat16);
  const auto widened = loaded("bf16", at::kFloat, 3);
  for (const auto& [name, tensor] : tensors_in(path("bf16"))) {
    EXPECT_EQ(widened.at(name).scalar_type(), at::kFloat) << name;
    EXPECT_TRUE(at::equal(widened.at(name), tensor.to(at::kFloat))) << name;
  }
}

}  // namespace
}  // namespace fsdp2::train
