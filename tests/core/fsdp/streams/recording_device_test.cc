// The recording device itself: what it reports, and what it has no reason to.
#include "tests/support/recording_device/device.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdp2::recording {
namespace {

class RecordingDevice : public ::testing::Test {
 protected:
  RecordingDevice() : side_(make_side_stream()) { recorder(0).start(); }

  static c10::Stream make_side_stream() {
    install();
    return c10::impl::VirtualGuardImpl(kType).getNewStream(kDevice, 0);
  }

  at::Tensor make(int64_t n = 8) const {
    return at::ones({n}, at::device(kDevice).dtype(at::kFloat));
  }
  // The side stream waits for what the current one has been given.
  void let_side_follow() const {
    c10::Event event(kType);
    event.record(c10::impl::VirtualGuardImpl(kType).getStream(kDevice));
    event.block(side_);
  }
  static size_t n_problems() { return recorder(0).problems().size(); }

  inline static const at::Device kDevice{kType, 0};
  const c10::Stream side_;
};

TEST_F(RecordingDevice, ComputesWhatTheHostComputes) {
  const at::Tensor x = at::arange(6, at::device(at::kCPU).dtype(at::kFloat)).view({2, 3});
  const at::Tensor y = x.to(kDevice).set_requires_grad(true);
  (y.matmul(y.t()).relu().sum() * 2).backward();
  const at::Tensor expected = x.clone().set_requires_grad(true);
  (expected.matmul(expected.t()).relu().sum() * 2).backward();
  EXPECT_TRUE(y.grad().device().type() == kType);
  EXPECT_TRUE(y.grad().to(at::kCPU).equal(expected.grad()));
  EXPECT_EQ(n_problems(), 0);
}

TEST_F(RecordingDevice, ReportsAReadThatDoesNotComeAfterTheWrite) {
  const at::Tensor x = make();
  {
    const c10::StreamGuard on_side(side_);
    const at::Tensor y = x + 1;
  }
  EXPECT_EQ(n_problems(), 1);
  let_side_follow();
  const c10::StreamGuard on_side(side_);
  const at::Tensor y = x + 1;
  EXPECT_EQ(n_problems(), 1);
}

TEST_F(RecordingDevice, ReportsAWriteThatDoesNotComeAfterAllReads) {
  const at::Tensor x = make();
  let_side_follow();
  {
    const c10::StreamGuard on_side(side_);
    const at::Tensor y = x + 1;
  }
  x.add_(1);
  EXPECT_EQ(n_problems(), 1);
}

TEST_F(RecordingDevice, ReportsAnAllocationOfMemoryThatAnotherStreamMayStillUse) {
  for (const bool ordered : {true, false}) {
    recorder(0).start();
    at::Tensor x = make();
    let_side_follow();
    c10::Event used(kType);
    {
      const c10::StreamGuard on_side(side_);
      const at::Tensor y = x + 1;
      used.record(side_);
    }
    x = at::Tensor();
    if (ordered) {
      used.block(c10::impl::VirtualGuardImpl(kType).getStream(kDevice));
    }
    make();
    EXPECT_EQ(n_problems(), ordered ? 0 : 1);
  }
}

TEST_F(RecordingDevice, MemoryThatItsOwnStreamUsedGoesAtOnce) {
  at::Tensor x = make();
  x = at::Tensor();
  make();
  EXPECT_EQ(n_problems(), 0);
}

TEST_F(RecordingDevice, ReportsEveryWaitOfTheHost) {
  const at::Tensor x = make();
  EXPECT_EQ(x.sum().item<float>(), 8.0F);
  EXPECT_TRUE(x.equal(make()));
  x.nonzero();
  x.to(at::kCPU);
  at::ones({2}, at::device(at::kCPU)).to(kDevice);
  at::ones({2}, at::device(at::kCPU)).to(kDevice, /*non_blocking=*/true);
  EXPECT_EQ(recorder(0).host_waits(),
            (std::vector<std::string>{"aten::_local_scalar_dense", "aten::equal", "aten::nonzero",
                                      "a copy to the host", "a copy from the host"}));
}

TEST_F(RecordingDevice, AWaitOfTheHostIsAnOrder) {
  const at::Tensor x = make();
  EXPECT_EQ(x[0].item<float>(), 1.0F);
  const c10::StreamGuard on_side(side_);
  const at::Tensor y = x + 1;
  EXPECT_EQ(n_problems(), 0);
}

TEST_F(RecordingDevice, LeavesAWaitOut) {
  for (const bool left_out : {false, true}) {
    recorder(0).start(left_out ? std::optional<size_t>(0) : std::nullopt);
    const at::Tensor x = make();
    let_side_follow();
    const c10::StreamGuard on_side(side_);
    const at::Tensor y = x + 1;
    EXPECT_EQ(n_problems(), left_out ? 1 : 0);
    EXPECT_TRUE(recorder(0).waits().at(0).relied_on);
  }
}

TEST_F(RecordingDevice, RefusesMemoryThatIsGone) {
  at::Tensor x = make();
  x.storage().set_data_ptr_noswap(c10::GetAllocator(kType)->allocate(0));
  EXPECT_ANY_THROW(x.add_(1));
}

}  // namespace
}  // namespace fsdp2::recording
