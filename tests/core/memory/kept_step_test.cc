// A training step whose memory is kept makes hardly any page faults.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <memory>

#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/wrap.h"
#include "core/memory/kept_memory.h"
#include "tests/support/ranks.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::memory {
namespace {

int64_t faults_of_process() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

struct Sharded {
  explicit Sharded(const std::shared_ptr<World>& world)
      : model(std::make_shared<TinyStack>(wide())),
        root(fsdp::fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"})),
        input(at::ones({512, wide().width})) {}

  static TinyStackOptions wide() {
    TinyStackOptions options;
    options.width = 1024;
    options.inner = 2048;
    return options;
  }

  void steps(int count) const {
    for (int i = 0; i < count; ++i) {
      (*model)(input).sum().backward();
      root->zero_grad();
    }
  }

  std::shared_ptr<TinyStack> model;
  std::shared_ptr<fsdp::Unit> root;
  at::Tensor input;
};

// In four steps of two ranks, after three that warm up.
int64_t faults_of_steps() {
  int64_t faults = 0;
  run_ranks(2, [&](const std::shared_ptr<World>& world) {
    const Sharded sharded(world);
    sharded.steps(3);
    world->control().barrier();
    const int64_t before = faults_of_process();
    sharded.steps(4);
    world->control().barrier();
    if (world->rank() == 0) {
      faults = faults_of_process() - before;
    }
  });
  return faults;
}

TEST(KeptMemoryInSteps, LateStepsMakeFewFaultsBesideThoseWithoutIt) {
  const int64_t without = faults_of_steps();
  keep_memory(true);
  const int64_t with = faults_of_steps();
  keep_memory(false);
  EXPECT_LT(with, without / 20) << "of " << without;
}

}  // namespace
}  // namespace fsdp2::memory
