// Memory that NCCL's communicators give. One rank, as ranks that share a GPU cannot use NCCL: its
// collectives copy, from where they are told to.
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "core/device/device_graphs.h"
#include "core/device/plugin.h"
#include "tests/gpu/missing_gpu.h"

namespace fsdp2 {
namespace {

using Group = c10::intrusive_ptr<StreamBackend>;

const at::Device kGpu{at::kCUDA, 0};
const at::TensorOptions kFloats = at::TensorOptions().device(kGpu).dtype(at::kFloat);

class NcclMemoryOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = missing_gpu()) {
      GTEST_SKIP() << *reason;
    }
    store_ = c10::make_intrusive<c10d::HashStore>();
    group_ =
        open_device_plugin(at::kCUDA).connect(store_, 0, 1, kGpu, std::chrono::milliseconds(20000));
  }

  at::Tensor given(int64_t numel) { return group_->allocateTensor(numel, kFloats); }
  static void wait() { c10::impl::VirtualGuardImpl(at::kCUDA).synchronizeDevice(0); }

  c10::intrusive_ptr<c10d::Store> store_;
  Group group_;
};

TEST_F(NcclMemoryOnAGpu, IsTheGpusAndCollectivesTakePlaceInIt) {
  ASSERT_TRUE(group_->supportsTensorAlloc(0));
  for (const int64_t numel :
       {int64_t{1}, int64_t{1000}, int64_t{1} << 20, (int64_t{1} << 20) + 1}) {
    at::Tensor in = given(numel);
    at::Tensor out = given(numel);
    EXPECT_EQ(in.device(), kGpu);
    EXPECT_EQ(in.numel(), numel);
    EXPECT_EQ(open_device_plugin(at::kCUDA).device_of(in.const_data_ptr()), kGpu);
    EXPECT_FALSE(in.is_alias_of(out));
    in.copy_(at::arange(numel, kFloats));
    out.zero_();
    group_->_allgather_base(out, in)->synchronize();
    EXPECT_TRUE(out.equal(at::arange(numel, kFloats))) << numel;
    c10d::ReduceScatterOptions options;
    options.reduceOp = c10d::ReduceOp::AVG;
    out.zero_();
    group_->_reduce_scatter_base(out, in, options)->synchronize();
    EXPECT_TRUE(out.equal(in)) << numel;
  }
}

TEST_F(NcclMemoryOnAGpu, GoesToTheNextOfItsSizeAndStream) {
  for (const int64_t numel : {int64_t{100}, int64_t{1} << 20}) {
    const void* first = nullptr;
    {
      const at::Tensor one = given(numel);
      const at::Tensor other = given(numel);
      EXPECT_NE(one.const_data_ptr(), other.const_data_ptr());
      first = other.const_data_ptr();
    }
    std::vector<const void*> found;
    std::vector<at::Tensor> held;
    for (int i = 0; i < 2; ++i) {
      held.push_back(given(numel));
      found.push_back(held.back().const_data_ptr());
    }
    EXPECT_TRUE(found[0] == first || found[1] == first);
    held.clear();
    const c10::impl::VirtualGuardImpl gpu(at::kCUDA);
    const c10::StreamGuard elsewhere(gpu.getStreamFromGlobalPool(kGpu));
    const at::Tensor of_stream = given(numel);
    EXPECT_NE(of_stream.const_data_ptr(), found[0]);
    EXPECT_NE(of_stream.const_data_ptr(), found[1]);
  }
}

TEST_F(NcclMemoryOnAGpu, ReleasingLeavesWhatIsInUse) {
  const at::Tensor used = given(int64_t{1} << 22);
  used.fill_(3.0);
  given(int64_t{1} << 22).fill_(5.0);
  given(10).fill_(5.0);
  group_->release_memory();
  EXPECT_EQ(used.sum().item<double>(), 3.0 * (1 << 22));
  at::Tensor again = given(10);
  again.fill_(7.0);
  EXPECT_EQ(again.sum().item<double>(), 70.0);
}

TEST_F(NcclMemoryOnAGpu, MayOutliveItsGroup) {
  const at::Tensor large = given(int64_t{1} << 22);
  const at::Tensor small = given(10);
  large.fill_(2.0);
  small.fill_(2.0);
  group_.reset();
  EXPECT_EQ(large.sum().item<double>(), 2.0 * (1 << 22));
  EXPECT_EQ(small.sum().item<double>(), 20.0);
}

// A recording's memory is nobody else's, for as long as the graph lives.
TEST_F(NcclMemoryOnAGpu, OfARecordingIsTheGraphs) {
  constexpr int64_t kNumel = int64_t{1} << 20;
  const at::Tensor x = at::ones({kNumel}, kFloats);
  const at::Tensor y = at::zeros({kNumel}, kFloats);
  const auto work = [&] {
    at::Tensor in = given(kNumel);
    at::Tensor out = given(kNumel);
    in.copy_(x);
    group_->_allgather_base(out, in)->synchronize();
    y.copy_(out);
  };
  work();
  auto graph = find_device_graphs(at::kCUDA)->record(kGpu, nullptr, work);
  group_->release_memory();
  const at::Tensor others = given(kNumel);
  const at::Tensor more = given(kNumel);
  others.fill_(9.0);
  more.fill_(9.0);
  for (int i = 1; i < 4; ++i) {
    x.fill_(i);
    graph->replay();
    EXPECT_TRUE(y.equal(x)) << i;
  }
  EXPECT_EQ(others.sum().item<double>() + more.sum().item<double>(), 18.0 * kNumel);
  graph.reset();
  group_->release_memory();
  wait();
}

}  // namespace
}  // namespace fsdp2
