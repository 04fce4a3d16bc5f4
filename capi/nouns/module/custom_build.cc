// How modules of the caller are put together.
#include <memory>
#include <string>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/fields.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/nn/custom_module.h"
#include "include/fsdp2/custom.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_parameter_options kParameterDefaults = FSDP2_PARAMETER_OPTIONS_INIT;
constexpr double kMaxStd = 1e6;

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_parameter_options> = std::tuple(
    Field("dtype", &fsdp2_parameter_options::dtype, FloatDtypeOrKeep()),
    Field("init", &fsdp2_parameter_options::init, Range{FSDP2_INIT_NORMAL, FSDP2_INIT_ONES}),
    Field("reserved", &fsdp2_parameter_options::reserved, Reserved()),
    Field("std", &fsdp2_parameter_options::std, NumberRange{0.0, kMaxStd}));
// clang-format on

namespace {

// A module that may still be put together, entered.
std::shared_ptr<nn::CustomModule> enter_to_build(Call& call, const ModuleObject& object,
                                                 const char* name) {
  enter(call, object);
  auto module = std::dynamic_pointer_cast<nn::CustomModule>(object.module);
  FSDP2_CHECK(
      module != nullptr, Code::kUnsupported,
      "{}: expected one that fsdp2_module_create_custom or _create_layer has made, found a {}",
      name, object.module->kind());
  FSDP2_CHECK(object.session->is_untouched(), Code::kWrongState,
              "{}: expected a module that has not run yet and has nothing sharded in it", name);
  return module;
}

void add_parameter(Call& call, ModuleObject& object, const char* name, const int64_t* shape,
                   size_t n_dims, const fsdp2_parameter_options* given) {
  const auto module = enter_to_build(call, object, "module");
  const fsdp2_parameter_options options = read_options(given, kParameterDefaults);
  nn::ParameterInit init;
  init.std = options.std;
  init.kind = options.init == FSDP2_INIT_ZEROS  ? nn::ParameterInit::Kind::kZeros
              : options.init == FSDP2_INIT_ONES ? nn::ParameterInit::Kind::kOnes
                                                : nn::ParameterInit::Kind::kNormal;
  module->add_parameter(
      read_text(name, kMaxName, "name"), read_shape(shape, n_dims),
      read_float_dtype_or_keep(options.dtype, "options.dtype").value_or(object.dtype), init);
  object.set_parameters(parameters_of(*module));
}

void add_child(Call& call, const std::shared_ptr<ModuleObject>& object, const char* name,
               const std::shared_ptr<ModuleObject>& child) {
  FSDP2_CHECK(object != child, Code::kInvalidArgument,
              "child: expected another module than the parent");
  const auto parent_module = enter_to_build(call, *object, "module");
  const auto child_module = enter_to_build(call, *child, "child");
  parent_module->add_child(read_text(name, kMaxName, "name"), child_module);
  object->set_parameters(parameters_of(*parent_module));
  object->parts.push_back(child);
  child->become_part_of(object);
}

// A copy, so that what else uses the tensor does not change the module.
at::Tensor copy_of(const at::Tensor& value) {
  check_has_memory(value);
  return value.detach().clone(at::MemoryFormat::Contiguous);
}

void add_buffer(Call& call, const ModuleObject& object, const char* name, fsdp2_tensor value,
                uint32_t flags) {
  const auto module = enter_to_build(call, object, "module");
  FSDP2_CHECK((flags & ~uint32_t{FSDP2_BUFFER_NOT_PERSISTENT}) == 0, Code::kInvalidArgument,
              "flags: expected 0 or FSDP2_BUFFER_NOT_PERSISTENT (1), found {}", flags);
  module->add_buffer(read_text(name, kMaxName, "name"), copy_of(pin(value)->tensor),
                     (flags & FSDP2_BUFFER_NOT_PERSISTENT) == 0);
}

void tie_parameter(Call& call, ModuleObject& object, const char* name, const char* other) {
  const auto module = enter_to_build(call, object, "module");
  module->tie_parameter(read_text(name, kMaxName, "name"), read_text(other, kMaxName, "other"));
  object.set_parameters(parameters_of(*module));
}

at::Tensor get_buffer(const ModuleObject& object, const std::string& name) {
  const auto buffers = object.module->named_buffers();
  const at::Tensor* found = buffers.find(name);
  FSDP2_CHECK(found != nullptr, Code::kNotFound, "name: the {} has no buffer '{}'",
              object.module->kind(), name);
  return found->detach();
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_parameter_options_init(fsdp2_parameter_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kParameterDefaults, "options");
  });
}

fsdp2_status fsdp2_module_add_parameter(fsdp2_module module, const char* name, const int64_t* shape,
                                        size_t n_dims, const fsdp2_parameter_options* options) {
  return guard(__func__, [&](Call& call) {
    capi::add_parameter(call, *pin(module), name, shape, n_dims, options);
  });
}

fsdp2_status fsdp2_module_add_child(fsdp2_module module, const char* name, fsdp2_module child) {
  return guard(__func__, [&](Call& call) { capi::add_child(call, pin(module), name, pin(child)); });
}

fsdp2_status fsdp2_module_add_buffer(fsdp2_module module, const char* name, fsdp2_tensor value,
                                     uint32_t flags) {
  return guard(__func__,
               [&](Call& call) { capi::add_buffer(call, *pin(module), name, value, flags); });
}

fsdp2_status fsdp2_module_get_buffer(fsdp2_module module, const char* name, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    const std::string text = capi::read_text(name, capi::kMaxName, "name");
    capi::check_not_null(out, "out");
    capi::enter_to_read(call, *object);
    *out = capi::give_tensor(capi::get_buffer(*object, text));
  });
}

fsdp2_status fsdp2_module_tie_parameter(fsdp2_module module, const char* name, const char* other) {
  return guard(__func__, [&](Call& call) { capi::tie_parameter(call, *pin(module), name, other); });
}
