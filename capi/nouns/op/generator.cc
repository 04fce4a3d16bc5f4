#include "capi/nouns/op/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "include/fsdp2/generator.h"

namespace fsdp2::capi {

namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_state(at::Generator generator, const at::Tensor& state) {
  const int64_t expected = state_of(generator).numel();
  FSDP2_CHECK(
      state.scalar_type() == at::kByte && state.dim() == 1 && state.numel() == expected,
      Code::kInvalidArgument,
      "state: expected a tensor of fsdp2_generator_get_state, {} u8 in 1 dim, found {} {} in {}",
      expected, state.numel(), c10::toString(state.scalar_type()), state.dim());
  const at::Tensor own = state.clone();  // which nobody writes to while it is checked
  const std::lock_guard lock(generator.mutex());
  generator.set_state(own);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_generator_create(uint64_t seed, fsdp2_generator* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    auto object = std::make_shared<capi::GeneratorObject>();
    object->generator = at::detail::createCPUGenerator(seed);
    out->id = capi::give(capi::Kind::kGenerator, std::move(object));
  });
}

fsdp2_status fsdp2_generator_get_state(fsdp2_generator generator, fsdp2_tensor* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(generator);
    capi::check_not_null(out, "out");
    *out = capi::give_tensor(capi::state_of(object->generator));
  });
}

fsdp2_status fsdp2_generator_set_state(fsdp2_generator generator, fsdp2_tensor state) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(generator);
    const auto given = pin(state);
    capi::check_has_memory(given->tensor);
    capi::set_state(object->generator, given->tensor);
  });
}

fsdp2_status fsdp2_generator_destroy(fsdp2_generator generator) {
  return capi::destroy(__func__, capi::Kind::kGenerator, generator.id);
}

fsdp2_status fsdp2_generator_duplicate(fsdp2_generator generator, fsdp2_generator* out) {
  return capi::duplicate(__func__, capi::Kind::kGenerator, generator, out);
}
