#include "core/nn/random/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

#include <mutex>

namespace fsdp2::nn {

namespace {

// LibTorch takes any two positions in its block of numbers, and would read past the block's end.
bool stays_in_block(const at::mt19937_data_pod& numbers) {
  const bool needs_new_block = numbers.left_ == 1;
  return needs_new_block || numbers.next_ + numbers.left_ - 1 <= at::MERSENNE_STATE_N;
}

}  // namespace

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

bool is_generator_state(const at::Tensor& state) {
  at::Generator taker = at::detail::createCPUGenerator();
  if (state.scalar_type() != at::kByte || state.sizes() != taker.get_state().sizes()) {
    return false;
  }
  try {
    taker.set_state(state);
  } catch (const c10::Error&) {
    return false;
  }
  return stays_in_block(at::check_generator<at::CPUGeneratorImpl>(taker)->engine().data());
}

}  // namespace fsdp2::nn
