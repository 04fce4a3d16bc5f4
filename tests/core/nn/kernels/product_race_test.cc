#include "core/nn/kernels/product_race.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <time.h>

#include <utility>
#include <vector>

namespace fsdp2::nn {
namespace {

void work_for(double seconds) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  };
  for (const double end = now() + seconds; now() < end;) {
  }
}

// By one thread: several wait for each other where other programs run.
class ProductRace : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }
  void TearDown() override { at::set_num_threads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

// As strict fp32 products do, which choose their engine by a race of their own.
TEST_F(ProductRace, WhatAWayDoesAtItsFirstUseIsNotItsSpeed) {
  bool is_first = true;
  const std::vector<RaceSpeed> speeds =
      race_products({[](const at::Tensor& a, const at::Tensor& b) { return at::mm(a, b.t()); },
                     [&](const at::Tensor& a, const at::Tensor& b) {
                       if (std::exchange(is_first, false)) {
                         work_for(0.3);
                       }
                       return at::mm(a, b.t());
                     }});
  EXPECT_GT(speeds[1].all, speeds[0].all / 2);
}

TEST_F(ProductRace, AWayThatIsFarSlowerRunsOnceBehindItsFirstUse) {
  int products = 0;
  const std::vector<RaceSpeed> speeds =
      race_products({[](const at::Tensor& a, const at::Tensor&) { return a; },
                     [&](const at::Tensor& a, const at::Tensor&) {
                       ++products;
                       work_for(0.05);
                       return a;
                     }});
  EXPECT_EQ(products, 4);
  EXPECT_GT(speeds[0].all, 8 * speeds[1].all);
}

TEST_F(ProductRace, TellsAWaysSpeedByTheKindOfProduct) {
  const std::vector<RaceSpeed> speeds =
      race_products({[](const at::Tensor& /*a*/, const at::Tensor& b) {
                       work_for(0.001);
                       return b;
                     },
                     [](const at::Tensor& a, const at::Tensor& b) {
                       work_for(a.is_contiguous() ? 0.001 : 0.01);
                       return b;
                     }});
  EXPECT_GT(speeds[1].rows, speeds[0].rows / 2);
  EXPECT_LT(speeds[1].weights, speeds[0].weights / 5);
  EXPECT_GT(speeds[1].all, speeds[1].weights);
  EXPECT_LT(speeds[1].all, speeds[1].rows);
}

}  // namespace
}  // namespace fsdp2::nn
