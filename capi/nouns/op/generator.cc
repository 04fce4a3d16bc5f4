#include "capi/nouns/op/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "core/nn/random/generator_state.h"
#include "include/fsdp2/generator.h"

namespace fsdp2::capi {

namespace {

void set_state(const at::Generator& generator, const at::Tensor& state) {
  const at::Tensor own = state.clone();  // which nobody writes to while it is checked
  FSDP2_CHECK(nn::is_generator_state(own), Code::kInvalidArgument,
              "state: expected what fsdp2_generator_get_state has returned, unchanged");
  nn::set_state(generator, own);
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
    *out = capi::give_tensor(fsdp2::nn::state_of(object->generator));
  });
}

fsdp2_status fsdp2_generator_set_state(fsdp2_generator generator, fsdp2_tensor state) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(generator);
    const auto given = pin(state);
    capi::check_has_values(given->tensor);
    capi::set_state(object->generator, given->tensor);
  });
}

fsdp2_status fsdp2_generator_destroy(fsdp2_generator generator) {
  return capi::destroy(__func__, capi::Kind::kGenerator, generator.id);
}

fsdp2_status fsdp2_generator_duplicate(fsdp2_generator generator, fsdp2_generator* out) {
  return capi::duplicate(__func__, capi::Kind::kGenerator, generator, out);
}
