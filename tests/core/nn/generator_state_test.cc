#include "core/nn/random/generator_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <cstring>

namespace fsdp2::nn {
namespace {

constexpr int64_t kNumbers = at::MERSENNE_STATE_N;  // that LibTorch makes at a time

at::Generator seeded(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

// A state in which so many numbers are left, which begin at `next`.
at::Tensor state_with(int32_t left, uint64_t next) {
  constexpr size_t kLeftAt = 8;  // in LibTorch's layout
  constexpr size_t kNextAt = 16;
  at::Tensor state = state_of(seeded(7));
  auto* bytes = state.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes + kLeftAt, &left, sizeof(left));
  std::memcpy(bytes + kNextAt, &next, sizeof(next));
  return state;
}

TEST(GeneratorState, IsWhereNumbersGoOn) {
  at::Generator generator = seeded(7);
  const at::Tensor state = state_of(generator);
  const at::Tensor drawn = at::rand({5}, generator);
  EXPECT_FALSE(at::equal(at::rand({5}, generator), drawn));
  set_state(generator, state);
  EXPECT_TRUE(at::equal(at::rand({5}, generator), drawn));
}

TEST(GeneratorState, IsTakenAfterAnyNumberOfDraws) {
  at::Generator generator = seeded(7);
  for (int64_t i = 0; i < 2 * kNumbers + 2; ++i) {
    EXPECT_TRUE(is_generator_state(state_of(generator))) << i;
    at::rand({1}, generator);
  }
}

TEST(GeneratorState, IsRefusedWhereNumbersWouldBeReadPastTheEnd) {
  EXPECT_TRUE(is_generator_state(state_with(1, kNumbers)));
  EXPECT_TRUE(is_generator_state(state_with(2, kNumbers - 1)));
  EXPECT_FALSE(is_generator_state(state_with(2, kNumbers)));
  EXPECT_FALSE(is_generator_state(state_with(kNumbers, kNumbers)));
  EXPECT_FALSE(is_generator_state(state_with(0, 0)));
}

TEST(GeneratorState, IsNothingElse) {
  const at::Tensor state = state_of(seeded(7));
  EXPECT_FALSE(is_generator_state(at::full_like(state, 0xff)));
  EXPECT_FALSE(is_generator_state(state.to(at::kChar)));
  EXPECT_FALSE(is_generator_state(state.unsqueeze(0)));
  EXPECT_FALSE(is_generator_state(state.narrow(0, 0, 8)));
}

}  // namespace
}  // namespace fsdp2::nn
