// Graphs of recording devices: what they do again, and what no graph can hold.
#include "tests/support/recording_device/graphs.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/recording_device/device.h"

namespace fsdp2::recording {
namespace {

using ::testing::HasSubstr;

class RecordedGraphs : public ::testing::Test {
 protected:
  RecordedGraphs() : x_(make()) { recorder(0).start(); }

  static at::Tensor make() {
    install();
    return at::ones({4}, at::device(kDevice).dtype(at::kFloat));
  }

  static c10::Stream current() { return c10::impl::VirtualGuardImpl(kType).getStream(kDevice); }
  static void let_follow(c10::Stream stream, c10::Stream of) {
    c10::Event event(kType);
    event.record(of);
    event.block(stream);
  }
  static std::string problem_of(const std::function<void()>& work) {
    try {
      graphs().record(kDevice, nullptr, work);
      return "";
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
  }

  inline static const at::Device kDevice{kType, 0};
  const at::Tensor x_;
};

TEST_F(RecordedGraphs, WorkRunsWhenItIsReplayedAndNotBefore) {
  at::Tensor sum;
  const auto graph = graphs().record(kDevice, nullptr, [&] {
    x_.mul_(2);
    sum = (x_ + 1).sum();
  });
  EXPECT_EQ(x_.sum().item<float>(), 4);
  EXPECT_TRUE(sum.isnan().item<bool>());
  graph->replay();
  EXPECT_EQ(sum.item<float>(), 12);
  graph->replay();
  EXPECT_EQ(x_.sum().item<float>(), 16);
  EXPECT_EQ(sum.item<float>(), 20);
  EXPECT_TRUE(recorder(0).problems().empty());
}

TEST_F(RecordedGraphs, TheHostMayNeitherWaitNorCopy) {
  const at::Tensor on_host = at::ones({4}, at::device(at::kCPU));
  EXPECT_THAT(problem_of([&] { x_.sum().item<float>(); }), HasSubstr("the host waits"));
  EXPECT_THAT(problem_of([&] { (void)x_.to(at::kCPU); }), HasSubstr("a copy to the host"));
  EXPECT_THAT(problem_of([&] { (void)on_host.to(kDevice, true); }), HasSubstr("from the host"));
  EXPECT_THAT(problem_of([&] { (void)x_.nonzero(); }), HasSubstr("the host waits"));
  EXPECT_EQ(x_.sum().item<float>(), 4);
}

TEST_F(RecordedGraphs, StreamsArePartOfItOnlyIfTheyFollowAndAreFollowed) {
  const c10::Stream side = c10::impl::VirtualGuardImpl(kType).getNewStream(kDevice, 0);
  const auto on_side = [&] {
    const c10::StreamGuard entered(side);
    const at::Tensor y = x_ + 1;
  };
  EXPECT_THAT(problem_of(on_side), HasSubstr("is not part of the recording"));
  EXPECT_THAT(problem_of([&] {
                let_follow(side, current());
                on_side();
              }),
              HasSubstr("that nobody has waited for"));
  EXPECT_EQ(problem_of([&] {
              let_follow(side, current());
              on_side();
              let_follow(current(), side);
            }),
            "");
}

TEST_F(RecordedGraphs, EventsAreOfARecordingOrNot) {
  c10::Event before(kType);
  before.record(current());
  EXPECT_THAT(problem_of([&] { before.block(current()); }), HasSubstr("before the recording"));
  c10::Event within(kType);
  EXPECT_EQ(problem_of([&] { within.record(current()); }), "");
  within.block(current());
  ASSERT_EQ(recorder(0).problems().size(), 1U);
  EXPECT_THAT(recorder(0).problems()[0], HasSubstr("a recording that has ended"));
}

}  // namespace
}  // namespace fsdp2::recording
