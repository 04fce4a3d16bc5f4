// Units whose gathers and reductions take place in memory that their groups give. That steps are
// the same and in order so is the scenarios' to tell (scenarios.cc).
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/fsdp/fully_shard.h"
#include "core/fsdp/scheduler.h"
#include "tests/support/ranks.h"
#include "tests/support/recording_device/backend.h"
#include "tests/support/recording_device/device.h"
#include "tests/support/tiny_models.h"

namespace fsdp2::fsdp {
namespace {

using Model = std::shared_ptr<TinyStack>;

struct Sharded {
  Model model;
  std::shared_ptr<Unit> root;
  recording::Recorder* recorder = nullptr;

  void set(bool flag) const {
    for (const auto& unit : root->units()) {
      unit->set_allocate_memory_from_process_group_for_comm(flag);
    }
  }
  void step() const { (*model)(at::ones({2, 8}, at::device(at::kCPU))).sum().backward(); }
  int64_t given_bytes() const { return recorder->given_bytes(); }
};

Sharded shard_on_device(const std::shared_ptr<World>& world, const Policy& policy) {
  Sharded sharded;
  sharded.model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
  sharded.root = fully_shard_by_kind(sharded.model, Mesh::for_fsdp(world, 0, "recording"), policy,
                                     {"TinyBlock"});
  sharded.root->tree();
  sharded.recorder = &recording::recorder(sharded.root->mesh().device().index());
  return sharded;
}

Policy direct() {
  Policy policy;
  policy.comm_path = CommPath::kDirect;
  return policy;
}

TEST(GroupMemory, IsGivenBackWithTheGradientsAndTheTree) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    Sharded sharded = shard_on_device(world, direct());
    sharded.step();
    EXPECT_EQ(sharded.given_bytes(), 0);
    sharded.root->zero_grad();
    sharded.set(true);
    sharded.step();
    EXPECT_GT(sharded.given_bytes(), 0);  // the gradients
    sharded.root->zero_grad();
    sharded.root->reshard();
    EXPECT_EQ(sharded.given_bytes(), 0);
    sharded.step();
    EXPECT_GT(sharded.given_bytes(), 0);
    sharded.root.reset();
    sharded.model.reset();
    EXPECT_EQ(sharded.given_bytes(), 0);
    EXPECT_EQ(sharded.recorder->problems(), std::vector<std::string>{});
  });
}

// What is gathered goes back to where it is from.
TEST(GroupMemory, MayBeTurnedOnAndOffWhileAUnitIsGathered) {
  for (const bool keep_buffers : {false, true}) {
    recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
      Policy policy = direct();
      policy.keep_buffers = keep_buffers;
      const Sharded sharded = shard_on_device(world, policy);
      const auto unit = sharded.root->units().at(1);
      unit->unshard();
      sharded.set(true);
      EXPECT_EQ(sharded.given_bytes(), 0);
      unit->reshard();
      unit->unshard();
      EXPECT_EQ(sharded.given_bytes(), unit->group()->unsharded_bytes());
      sharded.set(false);
      unit->reshard();
      EXPECT_EQ(sharded.given_bytes(), 0);
      const int64_t kept = sharded.root->scheduler().buffers().kept_bytes();
      EXPECT_EQ(kept, keep_buffers ? unit->group()->unsharded_bytes() : 0);
      EXPECT_EQ(sharded.recorder->problems(), std::vector<std::string>{});
      unit->unshard();
      EXPECT_EQ(sharded.given_bytes(), 0);
    });
  }
}

// The test of the scenarios: a group that has given memory takes no other.
TEST(GroupMemory, ACollectiveElsewhereIsAProblemOfTheDevice) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const Sharded sharded = shard_on_device(world, direct());
    const auto unit = sharded.root->units().at(1);
    sharded.set(true);
    unit->unshard();
    unit->reshard();
    EXPECT_EQ(sharded.recorder->problems(), std::vector<std::string>{});
    sharded.set(false);
    unit->unshard();
    EXPECT_THAT(sharded.recorder->problems(),
                testing::Contains(testing::HasSubstr("which its group has not given")));
  });
}

TEST(GroupMemory, OfReplicasIsThatOfTheGroupThatReduces) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 1, "recording"), direct(), {"TinyBlock"});
    root->tree();
    for (const auto& unit : root->units()) {
      unit->set_allocate_memory_from_process_group_for_comm(true);
    }
    (*model)(at::ones({2, 8}, at::device(at::kCPU))).sum().backward();
    int64_t gradients = 0;
    for (const ShardedParam* param : root->parameters()) {
      gradients += static_cast<int64_t>(param->sharded().grad().nbytes());
    }
    recording::Recorder& recorder = recording::recorder(root->mesh().device().index());
    EXPECT_GE(recorder.given_bytes(), gradients);
    EXPECT_EQ(recorder.problems(), std::vector<std::string>{});
  });
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(GroupMemory, ARootThatIsNotKnownIsRefused) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, "recording"), {}, {"TinyBlock"});
    EXPECT_THAT(message_of([&] { root->set_allocate_memory_from_process_group_for_comm(true); }),
                testing::HasSubstr("expected a unit whose root has been used"));
    root->set_allocate_memory_from_process_group_for_comm(false);
  });
}

TEST(GroupMemory, ATransportWithoutMemoryIsNamed) {
  const auto refuses = [](const std::shared_ptr<World>& world, const std::string& device,
                          const std::string& transport) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root =
        fully_shard_by_kind(model, Mesh::for_fsdp(world, 0, device), {}, {"TinyBlock"});
    const auto unit = root->units().at(1);
    EXPECT_THAT(message_of([&] { unit->set_allocate_memory_from_process_group_for_comm(true); }),
                testing::AllOf(
                    testing::HasSubstr("unit 'block0': "), testing::HasSubstr(" over " + transport),
                    testing::HasSubstr("leave it off, or use a mesh of cuda over nccl")));
    EXPECT_FALSE(unit->group()->settings().allocate_memory_from_process_group);
    (*model)(at::ones({2, 8}, at::device(at::kCPU))).sum().backward();  // as before
  };
  run_ranks(2, [&](const std::shared_ptr<World>& world) { refuses(world, "cpu", "thread"); });
  run_ranks(2, [&](const std::shared_ptr<World>& world) { refuses(world, "cpu", "gloo"); },
            {BackendKind::kGloo});
  recording::run_ranks_on_devices(
      2, [&](const std::shared_ptr<World>& world) { refuses(world, "recording", "staged thread"); },
      CollectiveOrder::kOnHost);
}

Code code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kInternal;
}

TEST(GroupMemory, ARankWithoutAnyTellsTheOthers) {
  recording::run_ranks_on_devices(2, [](const std::shared_ptr<World>& world) {
    const Sharded sharded = shard_on_device(world, direct());
    const auto unit = sharded.root->units().at(1);
    const at::Device device = sharded.root->mesh().device();
    sharded.set(true);
    if (world->rank() == 1) {
      recording::set_memory_fails(device, true);
      EXPECT_EQ(code_of([&] { unit->unshard(); }), Code::kComm);
      recording::set_memory_fails(device, false);
      EXPECT_EQ(code_of([&] { unit->unshard(); }), Code::kPeerFailed);
    } else {
      const auto failure = sharded.root->mesh().comm(0, Lane::kGather).failure();
      while (!failure->failed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      EXPECT_EQ(code_of([&] { unit->unshard(); }), Code::kPeerFailed);
    }
    sharded.root->reset();
    EXPECT_EQ(sharded.given_bytes(), 0);
  });
}

// What a callback returns may be anywhere.
TEST(GroupMemory, PiecesOfAnExtensionElsewhereAreRefused) {
  for (const bool in_group_memory : {false, true}) {
    recording::run_ranks_on_devices(2, [&](const std::shared_ptr<World>& world) {
      Policy policy = direct();
      policy.offload = {/*to_cpu=*/true, /*pin_memory=*/false};
      const Sharded sharded = shard_on_device(world, policy);
      sharded.set(in_group_memory);
      const auto unit = sharded.root->units().at(1);
      AllGatherExtension extension;
      extension.pre_all_gather = [](const ShardedParam&, const at::Tensor& chunk, const Mesh&) {
        return chunk;
      };
      extension.post_all_gather = [](const ShardedParam&, const at::Tensor& pieces,
                                     const at::Tensor& out) { out.copy_(pieces); };
      unit->set_all_gather_extension(extension);
      EXPECT_THAT(message_of([&] { unit->unshard(); }),
                  testing::HasSubstr("pre_all_gather of block0.in.weight: expected a tensor on "));
      sharded.root->reset();
      EXPECT_EQ(sharded.given_bytes(), 0);
    });
  }
}

// Nothing of it travels.
TEST(GroupMemory, ALoneRankNeedsNone) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    const auto model = std::make_shared<TinyStack>(TinyStackOptions{8, 16, 2});
    const auto root = fully_shard_by_kind(model, Mesh::for_fsdp(world, 0), {}, {"TinyBlock"});
    root->tree();
    root->set_allocate_memory_from_process_group_for_comm(true);
    EXPECT_TRUE(root->group()->settings().allocate_memory_from_process_group);
    (*model)(at::ones({2, 8})).sum().backward();
  });
}

}  // namespace
}  // namespace fsdp2::fsdp
