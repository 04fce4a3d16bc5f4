// Groups whose tensors are on another device than the host, without such a device: what goes where
// is decided before any tensor is touched.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "core/base/error.h"
#include "core/comm/mesh.h"
#include "core/comm/mesh_collectives.h"
#include "core/comm/mesh_numbers.h"
#include "core/comm/transport/staged_backend.h"
#include "core/comm/transport/thread_backend.h"
#include "core/comm/transport/thread_job.h"
#include "core/device/own_device.h"
#include "core/device/stream_backend.h"
#include "tests/support/errors.h"
#include "tests/support/ranks.h"

namespace fsdp2 {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

struct Waits {
  int on_host = 0;
  int on_stream = 0;
  std::exception_ptr error;  // of a collective that a stream was given
  std::function<std::string()> reason_to_give_up;
};

// A collective of a device that has ended: it notes who waits for it.
class DeviceWork final : public c10d::Work {
 public:
  explicit DeviceWork(std::shared_ptr<Waits> waits) : waits_(std::move(waits)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    ++waits_->on_host;
    return true;
  }
  void synchronize() override { ++waits_->on_stream; }

 private:
  std::shared_ptr<Waits> waits_;
};

class DeviceBackend final : public StreamBackend {
 public:
  DeviceBackend(int rank, int size, std::shared_ptr<Waits> waits)
      : StreamBackend(rank, size), waits_(std::move(waits)) {}
  const std::string getBackendName() const override { return "device"; }
  std::exception_ptr error() const override { return waits_->error; }
  void give_up_when(std::function<std::string()> reason) override {
    waits_->reason_to_give_up = std::move(reason);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(
      at::Tensor& /*out*/, at::Tensor& /*in*/, const c10d::AllgatherOptions& /*options*/) override {
    return c10::make_intrusive<DeviceWork>(waits_);
  }

 private:
  std::shared_ptr<Waits> waits_;
};

// Adds the device that each rank would have there.
std::shared_ptr<Waits> add_devices(World& world, at::DeviceType type) {
  const auto waits = std::make_shared<Waits>();
  const auto index = static_cast<c10::DeviceIndex>(world.local_rank());
  world.add_transport(at::Device(type, index), [waits](const std::string&, int rank, int size) {
    return c10::make_intrusive<DeviceBackend>(rank, size, waits);
  });
  return waits;
}

TEST(Device, AMeshOfATypeWithoutTransportIsRefused) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const std::string message =
        message_of_error([&] { Mesh::create(world, {2}, {"fsdp"}, "cuda"); }, Code::kUnsupported);
    // The driver is missing here, or the part of LibTorch that the build leaves out.
    EXPECT_THAT(message, StartsWith("mesh: cuda: "));
    EXPECT_THAT(message, AnyOf(HasSubstr("libcuda.so.1"), HasSubstr("libtorch_cuda.so")));
    EXPECT_EQ(Mesh::create(world, {2}, {"fsdp"}, "auto")->device(), at::Device(at::kCPU));
    EXPECT_EQ(error_of([&] { Mesh::create_from_ranks(world, {0, 1}, {2}, {}, "cuda"); }).code(),
              Code::kUnsupported);
    EXPECT_EQ(error_of([&] { world->make_group("pair", {0, 1}, at::kCUDA); }).code(),
              Code::kUnsupported);
  });
}

TEST(Device, AMeshHasItsGroupsOnTheRanksDeviceAndItsControlOnTheHost) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    add_devices(*world, at::kCUDA);
    const auto mesh = Mesh::create(world, {2, 2}, {"ddp", "fsdp"}, "cuda");
    const auto all = Mesh::create(world, {4}, {"fsdp"}, "cuda");
    const auto sub = mesh->submesh({"fsdp"});
    const auto of_group = Mesh::from_group(world, mesh->group(1), "fsdp");
    const auto flat = mesh->flatten({"ddp", "fsdp"}, "all");
    for (const auto& each : {mesh, all, sub, of_group, flat}) {
      EXPECT_TRUE(each->device().is_cuda());
      EXPECT_EQ(each->device().index(), world->local_rank());
      EXPECT_EQ(each->comm(0, Lane::kGather).device(), each->device());
      EXPECT_EQ(each->comm(0, Lane::kReduce).device(), each->device());
      EXPECT_TRUE(each->comm(0, Lane::kControl).device().is_cpu());
      EXPECT_EQ(each->comm(0, Lane::kControl).members(), each->comm(0, Lane::kGather).members());
    }
    EXPECT_TRUE(world->control().device().is_cpu());
    EXPECT_NE(*all, *Mesh::create(world, {4}, {"fsdp"}));
  });
}

TEST(Device, TheHostsNumbersDoNotTouchTheDevicesGroups) {
  run_ranks(4, [](const std::shared_ptr<World>& world) {
    add_devices(*world, at::kCUDA);
    const int row = world->rank() / 2 * 2;
    const auto mesh = Mesh::create_from_ranks(world, {row, row + 1}, {2}, {}, "cuda");
    double rank = world->rank();
    mesh_reduce_numbers(*mesh, &rank, 1, ReduceOp::kMax);
    EXPECT_EQ(rank, row + 1);
    mesh_barrier(*mesh);
    EXPECT_FALSE(mesh->comm(0, Lane::kGather).connected());
  });
}

TEST(Device, OnTheHostControlIsTheGatherLane) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto mesh = Mesh::create(world, {2, 1}, {"ddp", "fsdp"});
    for (int dim = 0; dim < 2; ++dim) {
      EXPECT_EQ(&mesh->comm(dim, Lane::kControl), &mesh->comm(dim, Lane::kGather));
    }
  });
}

TEST(Device, ATensorOffTheGroupsDeviceIsRefusedBeforeItMoves) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const at::Tensor elsewhere = at::empty({4}, at::device(at::kMeta));
    const at::Tensor here = at::empty({2}, at::device(at::kCPU));
    Comm& comm = world->control();
    EXPECT_EQ(
        message_of_error([&] { (void)comm.all_gather(elsewhere, here); }, Code::kInvalidArgument),
        "all_gather: the output is on meta, but group control is one of cpu: copy it there, "
        "or use a group of its own device");
    EXPECT_EQ(error_of([&] { (void)comm.all_reduce(elsewhere, ReduceOp::kSum); }).code(),
              Code::kInvalidArgument);
    const auto mesh = Mesh::create(world, {2}, {"fsdp"});
    EXPECT_EQ(
        message_of_error([&] { mesh_all_gather(*mesh, 0, elsewhere, 0); }, Code::kInvalidArgument),
        "expected a tensor on the mesh's device, cpu, found one on meta");
  });
}

TEST(Device, AStreamsWaitLeavesTheHostAlone) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto waits = add_devices(*world, at::kMeta);
    const auto comm = world->make_comm("pair", {0, 1}, at::kMeta);
    const at::TensorOptions on_device = at::device(at::kMeta);
    CommWork work = comm->all_gather(at::empty({2}, on_device), at::empty({1}, on_device));
    work.wait_on_stream();
    EXPECT_EQ(waits->on_stream, 1);
    EXPECT_EQ(waits->on_host, 0);
    EXPECT_TRUE(work.pending());  // for the host, which does not know of its end
    work.wait();
    EXPECT_EQ(waits->on_host, 1);
    EXPECT_FALSE(work.pending());
  });
}

TEST(Device, ACollectiveThatFailedOnAStreamIsToldBeforeItsResultsAreUsed) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto waits = add_devices(*world, at::kMeta);
    const auto comm = world->make_comm("pair", {0, 1}, at::kMeta);
    comm->check_streams();
    mesh_barrier(*Mesh::create(world, {2}, {"fsdp"}));  // nobody fails before the other has looked
    if (world->rank() == 1) {
      waits->error = std::make_exception_ptr(std::runtime_error("the cable was pulled"));
      EXPECT_THAT(message_of_error([&] { comm->check_streams(); }, Code::kComm),
                  StartsWith("a collective of group pair failed on rank 1: the cable was pulled"));
    } else {
      EXPECT_THAT(error_of([&] { world->control().barrier(); }).message(),
                  HasSubstr("the cable was pulled"));
    }
  });
}

// Its streams would wait for the rank that failed, and the host for its streams.
TEST(Device, AGroupOfADeviceLearnsThatItsRanksHaveGivenUp) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto waits = add_devices(*world, at::kMeta);
    const auto comm = world->make_comm("pair", {0, 1}, at::kMeta);
    EXPECT_EQ(waits->reason_to_give_up(), "");
    world->control().barrier();
    if (world->rank() == 1) {
      world->publish_failure("the disk is full");
    }
    EXPECT_ANY_THROW(world->control().barrier());
    EXPECT_THAT(waits->reason_to_give_up(), HasSubstr("the disk is full"));
  });
}

TEST(Device, OnTheHostAStreamsWaitIsTheHosts) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const at::TensorOptions on_host = at::device(at::kCPU).dtype(at::kFloat);
    at::Tensor out = at::zeros({2}, on_host);
    const at::Tensor in = at::zeros({1}, on_host);
    in.fill_(world->rank() + 1);
    CommWork work = world->control().all_gather(out, in);
    work.wait_on_stream();
    EXPECT_FALSE(work.pending());
    EXPECT_EQ(out.sum().item<float>(), 3.0F);
  });
}

// The device is the host itself here: what differs is that nothing may be there before the wait.
TEST(Device, StagedCollectivesGiveTheirResultsInTheWait) {
  constexpr int kRanks = 3;
  run_ranks(kRanks, [](const std::shared_ptr<World>& world) {
    const int rank = world->rank();
    const auto job = ThreadJob::join("thread://staged", rank, kRanks, std::chrono::seconds(60));
    const auto backend =
        make_staged_backend(make_thread_backend(job->group("group", kRanks), rank));
    const auto wait = [](const c10::intrusive_ptr<c10d::Work>& work) {
      ASSERT_TRUE(work->wait(std::chrono::seconds(60)));
    };
    const at::TensorOptions options = at::device(at::kCPU).dtype(at::kFloat);
    at::Tensor all = at::zeros({kRanks}, options);
    at::Tensor own = at::full({1}, rank + 1.0, options);
    const auto gather = backend->_allgather_base(all, own, {});
    EXPECT_TRUE(all.eq(0).all().item<bool>());
    wait(gather);
    EXPECT_TRUE(all.equal(at::tensor({1.0F, 2.0F, 3.0F})));

    at::Tensor part = at::zeros({1}, options);
    c10d::ReduceScatterOptions sum;
    wait(backend->_reduce_scatter_base(part, all, sum));
    EXPECT_EQ(part.item<float>(), kRanks * (rank + 1.0F));

    std::vector<at::Tensor> one{at::full({1}, rank + 1.0, options)};
    wait(backend->allreduce(one, {}));
    EXPECT_EQ(one[0].item<float>(), 6.0F);

    c10d::BroadcastOptions from_last;
    from_last.rootRank = kRanks - 1;
    one[0].fill_(rank);
    wait(backend->broadcast(one, from_last));
    EXPECT_EQ(one[0].item<float>(), kRanks - 1.0F);

    std::vector<std::vector<at::Tensor>> parts;
    if (rank == 0) {
      parts = {all.split(1)};
    }
    wait(backend->scatter(one, parts, {}));
    EXPECT_EQ(one[0].item<float>(), rank + 1.0F);
    std::vector<int64_t> equal;
    at::Tensor exchanged = at::zeros({kRanks}, options);
    at::Tensor mine = at::full({kRanks}, rank + 1.0, options);
    const auto exchange = backend->alltoall_base(exchanged, mine, equal, equal, {});
    EXPECT_TRUE(exchanged.eq(0).all().item<bool>());
    wait(exchange);
    EXPECT_TRUE(exchanged.equal(at::tensor({1.0F, 2.0F, 3.0F})));
    wait(backend->barrier({}));
  });
}

// A copy to the device that fails is no result, however often somebody asks.
TEST(Device, AStagedCollectiveWhoseResultWasNotCopiedHasFailed) {
  run_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto job =
        ThreadJob::join("thread://uncopied", world->rank(), 2, std::chrono::seconds(60));
    const auto backend =
        make_staged_backend(make_thread_backend(job->group("group", 2), world->rank()));
    at::Tensor out = at::zeros({2}, at::device(at::kCPU));
    at::Tensor in = at::ones({1}, at::device(at::kCPU));
    const auto work = backend->_allgather_base(out, in, {});
    EXPECT_FALSE(work->isSuccess());
    out.resize_({5});
    for (int times = 0; times < 2; ++times) {
      EXPECT_ANY_THROW(work->wait(std::chrono::seconds(60)));
      EXPECT_NE(work->exception(), nullptr);
      EXPECT_FALSE(work->isSuccess());
    }
  });
}

TEST(Device, OneTransportATypeOfDevice) {
  run_ranks(1, [](const std::shared_ptr<World>& world) {
    EXPECT_EQ(world->device(at::kCPU), at::Device(at::kCPU));
    EXPECT_EQ(message_of_error([&] { add_devices(*world, at::kCPU); }, Code::kWrongState),
              "groups of cpu:0 have a transport already");
  });
}

TEST(OwnDevice, IsThatOfTheLocalRank) {
  EXPECT_EQ(own_device(at::kCUDA, {8, std::nullopt}, 3, /*may_share=*/false).index(), 3);
  EXPECT_EQ(own_device(at::kCUDA, {2, "4,5"}, 1, /*may_share=*/false).index(), 1);
  EXPECT_EQ(own_device(at::kCUDA, {2, std::nullopt}, 5, /*may_share=*/true).index(), 1);
}

// As launchers do that give each process one GPU.
TEST(OwnDevice, IsTheOnlyOneThatTheProcessWasGiven) {
  EXPECT_EQ(own_device(at::kCUDA, {1, "5"}, 5, /*may_share=*/false).index(), 0);
  EXPECT_EQ(own_device(at::kCUDA, {1, "GPU-3a2b"}, 7, /*may_share=*/false).index(), 0);
}

TEST(OwnDevice, IsRefusedWhereThereIsNone) {
  const auto refused = [](const SeenDevices& seen) {
    return error_of([&] { own_device(at::kCUDA, seen, 1, /*may_share=*/false); });
  };
  EXPECT_THAT(refused({0, std::nullopt}).message(), HasSubstr("found no such device"));
  for (const auto& visible : {std::optional<std::string>(), std::optional<std::string>("")}) {
    EXPECT_THAT(refused({1, visible}).message(),
                HasSubstr("local rank 1 has no device of its own, there are 1"));
  }
  EXPECT_EQ(refused({1, "0,1"}).code(), Code::kUnsupported);
}

}  // namespace
}  // namespace fsdp2
