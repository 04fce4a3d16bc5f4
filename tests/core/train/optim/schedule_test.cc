#include "core/train/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

std::vector<double> rates(const ScheduleOptions& options, int64_t count) {
  const Schedule schedule(options);
  std::vector<double> values;
  for (int64_t step = 0; step < count; ++step) {
    values.push_back(schedule.learning_rate(step));
  }
  return values;
}

void expect_equal(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t step = 0; step < values.size(); ++step) {
    EXPECT_DOUBLE_EQ(values[step], expected[step]) << "step " << step;
  }
}

ScheduleOptions options(ScheduleShape shape, double peak, int64_t steps, int64_t warmup,
                        double ratio) {
  return {peak, shape, steps, warmup, ratio, 0.0, 0};
}

TEST(Schedule, ConstantIsThatOfTheGoldenRunFp32) {
  expect_equal(rates(options(ScheduleShape::kConstant, 0.003, 10, 0, 0.0), 10),
               std::vector<double>(10, 0.003));
}

TEST(Schedule, LinearIsThatOfTheGoldenRunFp32Linear) {
  expect_equal(rates(options(ScheduleShape::kLinear, 0.003, 10, 2, 0.0), 10),
               {0.0015, 0.003, 0.003, 0.002625, 0.0022500000000000003, 0.001875, 0.0015,
                0.0011250000000000001, 0.00075, 0.000375});
}

TEST(Schedule, CosineIsThatOfTheGoldenRunFp32SgdCosineClip) {
  expect_equal(rates(options(ScheduleShape::kCosine, 0.2, 10, 3, 0.1), 10),
               {0.06666666666666667, 0.13333333333333333, 0.20000000000000004, 0.2,
                0.19108719811121772, 0.16611408216728601, 0.13002688405606827, 0.08997311594393172,
                0.053885917832713986, 0.028912801888782293});
}

TEST(Schedule, StaysAtTheEndPastTheLastStep) {
  const Schedule linear(options(ScheduleShape::kLinear, 1.0, 10, 0, 0.25));
  EXPECT_DOUBLE_EQ(linear.learning_rate(10), 0.25);
  EXPECT_DOUBLE_EQ(linear.learning_rate(1'000'000), 0.25);
  const Schedule cosine(options(ScheduleShape::kCosine, 1.0, 10, 0, 0.25));
  EXPECT_DOUBLE_EQ(cosine.learning_rate(10), 0.25);
  EXPECT_DOUBLE_EQ(cosine.learning_rate(1'000'000), 0.25);
}

TEST(Schedule, ConstantNeedsNoLengthAndIgnoresTheMinimum) {
  expect_equal(rates(options(ScheduleShape::kConstant, 0.5, 0, 2, 0.1), 4), {0.25, 0.5, 0.5, 0.5});
}

TEST(Schedule, RunMayEndWithinTheWarmUp) {
  expect_equal(rates(options(ScheduleShape::kLinear, 1.0, 2, 4, 0.0), 6),
               {0.25, 0.5, 0.75, 1.0, 1.0, 0.0});
}

TEST(Schedule, WarmUpBeginsWhereItIsToldTo) {
  ScheduleOptions warm = options(ScheduleShape::kConstant, 1.0, 0, 4, 0.0);
  warm.start_ratio = 0.2;
  expect_equal(rates(warm, 6), {0.4, 0.6, 0.8, 1.0, 1.0, 1.0});
  warm.start_ratio = 1.0;
  expect_equal(rates(warm, 3), {1.0, 1.0, 1.0});
}

TEST(Schedule, DecayIsOverAfterItsOwnSteps) {
  ScheduleOptions early = options(ScheduleShape::kLinear, 1.0, 100, 2, 0.2);
  early.decay_steps = 6;
  expect_equal(rates(early, 9), {0.5, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2});
  ScheduleOptions cosine = options(ScheduleShape::kCosine, 1.0, 100, 0, 0.0);
  cosine.decay_steps = 2;
  const std::vector<double> values = rates(cosine, 4);
  EXPECT_DOUBLE_EQ(values[0], 1.0);
  EXPECT_DOUBLE_EQ(values[1], 0.5);
  EXPECT_NEAR(values[2], 0.0, 1e-16);
  EXPECT_EQ(values[3], values[2]);
}

TEST(Schedule, DecayWithinTheWarmUpComesAtOnceAfterIt) {
  ScheduleOptions early = options(ScheduleShape::kLinear, 1.0, 10, 4, 0.25);
  early.decay_steps = 2;
  expect_equal(rates(early, 7), {0.25, 0.5, 0.75, 1.0, 1.0, 0.25, 0.25});
}

TEST(Schedule, OptionsOutOfRangeAreRefused) {
  const auto refuses = [](const ScheduleOptions& bad, const char* message) {
    EXPECT_ERROR(Schedule{bad}, Code::kInvalidArgument, message);
  };
  const ScheduleShape linear = ScheduleShape::kLinear;
  refuses(options(linear, -0.1, 10, 0, 0.0), "learning rate: expected a finite number >= 0");
  refuses(options(linear, NAN, 10, 0, 0.0), "found nan");
  refuses(options(linear, std::numeric_limits<double>::infinity(), 10, 0, 0.0), "found inf");
  refuses(options(linear, 0.1, 0, 0, 0.0), "needs to know how many there are");
  refuses(options(linear, 0.1, -1, 0, 0.0), "steps: expected >= 0, found -1");
  refuses(options(linear, 0.1, 10, -1, 0.0), "warm-up steps: expected >= 0, found -1");
  refuses(options(linear, 0.1, 10, 0, -0.1), "ratio: expected a number in [0, 1], found -0.1");
  refuses(options(linear, 0.1, 10, 0, 1.1), "found 1.1");
  refuses(options(linear, 0.1, 10, 0, NAN), "found nan");
  ScheduleOptions start = options(linear, 0.1, 10, 0, 0.0);
  start.start_ratio = 1.5;
  refuses(start, "starting learning rate ratio: expected a number in [0, 1], found 1.5");
  start.start_ratio = NAN;
  refuses(start, "found nan");
  ScheduleOptions decay = options(linear, 0.1, 10, 0, 0.0);
  decay.decay_steps = 11;
  refuses(decay, "decay steps: expected 0 to the 10 steps, found 11");
  decay.decay_steps = -1;
  refuses(decay, "found -1");
}

TEST(Schedule, NegativeStepIsRefused) {
  const Schedule schedule(options(ScheduleShape::kConstant, 1.0, 0, 0, 0.0));
  EXPECT_ERROR(schedule.learning_rate(-1), Code::kInvalidArgument, "step: expected >= 0, found -1");
}

}  // namespace
}  // namespace fsdp2::train
