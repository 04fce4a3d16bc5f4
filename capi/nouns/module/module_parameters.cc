// The parameters of a module, one by one, and which of them are trained.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/nouns/module/module.h"
#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/fsdp/group/sharded_param.h"
#include "include/fsdp2/module.h"
#include "include/fsdp2/shard.h"

namespace fsdp2::capi {

namespace {

ModuleParameter parameter_at(const ModuleObject& object, size_t index) {
  const auto parameters = object.parameters();
  FSDP2_CHECK(index < parameters->size(), Code::kInvalidArgument,
              "index: there are {} parameters, found {}", parameters->size(), index);
  return (*parameters)[index];
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

size_t parameter_index(const ModuleObject& object, const std::string& name) {
  const auto parameters = object.parameters();
  const auto found = std::find_if(
      parameters->begin(), parameters->end(),
      [&](const ModuleParameter& parameter) { return has_name(parameter.names, name); });
  FSDP2_CHECK(found != parameters->end(), Code::kNotFound, "name: the module has no parameter '{}'",
              name);
  return static_cast<size_t>(found - parameters->begin());
}

// What stands in the module now: the parameter itself, or what sharding has put in its place. By
// its path: programs ask for parameters one by one, and to list all tensors each time is slow.
at::Tensor tensor_of(const ModuleObject& object, const ModuleParameter& parameter) {
  const std::string& path = parameter.names.front();
  const torch::nn::Module* module = object.module.get();
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    const auto children = module->named_children();
    const auto* child = children.find(path.substr(begin, dot - begin));
    FSDP2_CHECK(child != nullptr, Code::kInternal, "parameter {} is gone", path);
    module = child->get();
    begin = dot + 1;
  }
  const auto parameters = module->named_parameters(/*recurse=*/false);
  const at::Tensor* found = parameters.find(path.substr(begin));
  FSDP2_CHECK(found != nullptr, Code::kInternal, "parameter {} is gone", path);
  return *found;
}

fsdp2_module_parameter_info parameter_info(const ModuleObject& object, size_t index) {
  const ModuleParameter parameter = parameter_at(object, index);
  const auto n_dims = parameter.shape.size();
  FSDP2_CHECK(n_dims <= FSDP2_MAX_DIMS, Code::kUnsupported, "{}: {} dims are more than {}",
              parameter.names.front(), n_dims, FSDP2_MAX_DIMS);
  const at::Tensor tensor = tensor_of(object, parameter);
  const bool is_sharded = fsdp::ShardedParam::manages(tensor);
  fsdp2_module_parameter_info info{};
  info.dtype = dtype_number(parameter.dtype);
  info.requires_grad = tensor.requires_grad() ? 1 : 0;
  info.is_sharded = is_sharded ? 1 : 0;
  info.has_grad = !is_sharded && tensor.grad().defined() ? 1 : 0;
  info.n_names = static_cast<int32_t>(parameter.names.size());
  info.n_dims = static_cast<int32_t>(n_dims);
  std::copy_n(parameter.shape.begin(), n_dims, info.shape);
  return info;
}

at::Tensor get_parameter(const ModuleObject& object, size_t index, int32_t which) {
  FSDP2_CHECK(which == FSDP2_PARAMETER_LOCAL || which == FSDP2_PARAMETER_LOCAL_GRAD,
              Code::kInvalidArgument,
              "which: expected FSDP2_PARAMETER_LOCAL (0) or _LOCAL_GRAD (1), found {}", which);
  const ModuleParameter parameter = parameter_at(object, index);
  const std::string& name = parameter.names.front();
  const at::Tensor tensor = tensor_of(object, parameter);
  FSDP2_CHECK(!fsdp::ShardedParam::manages(tensor), Code::kWrongState,
              "{}: expected a parameter that sharding has left alone, found a sharded one: see "
              "fsdp2_shard_get_parameter",
              name);
  if (which == FSDP2_PARAMETER_LOCAL_GRAD) {
    FSDP2_CHECK(tensor.grad().defined(), Code::kNotFound, "{}: the parameter has no gradient",
                name);
    return tensor.grad().detach();
  }
  FSDP2_CHECK(!nn::has_no_memory(tensor), Code::kWrongState,
              "{}: the parameter has no values yet: sharding the module, or its first forward, "
              "gives them",
              name);
  return tensor.detach();
}

void zero_grad(const ModuleObject& object) {
  check_usable(object);
  if (object.mesh != nullptr) {
    fsdp::find_unit(*object.module)->zero_grad();
  }
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*object.module)) {
    if (!fsdp::ShardedParam::manages(parameter.tensor)) {
      parameter.tensor.mutable_grad() = at::Tensor();
    }
  }
}

// Whether `name` is one of the parameter's, or the path of a module that it is in.
bool is_named(const nn::NamedParameter& parameter, const std::string& name) {
  return std::any_of(parameter.names.begin(), parameter.names.end(), [&](const std::string& own) {
    return own == name || own.rfind(name + ".", 0) == 0;
  });
}

std::vector<at::Tensor> find_parameters(const ModuleObject& object,
                                        const std::vector<std::string>& names) {
  const auto all = nn::named_unique_parameters(*object.module);
  std::vector<at::Tensor> found;
  for (const nn::NamedParameter& parameter : all) {
    if (names.empty()) {
      found.push_back(parameter.tensor);
    }
  }
  for (const std::string& name : names) {
    const size_t before = found.size();
    for (const nn::NamedParameter& parameter : all) {
      if (is_named(parameter, name)) {
        found.push_back(parameter.tensor);
      }
    }
    FSDP2_CHECK(found.size() > before, Code::kNotFound,
                "names: '{}' is no parameter of {}, and no module in it that has one", name,
                object.module->kind());
  }
  return found;
}

void set_requires_grad(const ModuleObject& object, const std::vector<std::string>& names,
                       bool flag) {
  check_usable(object);
  FSDP2_CHECK(object.session->state() == train::Session::State::kPlain, Code::kWrongState,
              "module: expected one of which nothing is sharded yet: units are made for the "
              "parameters that are trained");
  for (const at::Tensor& tensor : find_parameters(object, names)) {
    tensor.set_requires_grad(flag);
  }
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_module_get_parameter_count(fsdp2_module module, size_t* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(module);
    capi::check_not_null(out, "out");
    *out = object->parameters()->size();
  });
}

fsdp2_status fsdp2_module_get_parameter_info(fsdp2_module module, size_t index,
                                             fsdp2_module_parameter_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::check_out_struct(out, "out");
    capi::enter_to_read(call, *object);
    capi::fill_struct(out, capi::parameter_info(*object, index));
  });
}

fsdp2_status fsdp2_module_get_parameter_name(fsdp2_module module, size_t index, size_t name_index,
                                             char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(module);
    const auto names = capi::parameter_at(*object, index).names;
    capi::check_count(name_index, 0, names.size() - 1, "name_index");
    capi::write_text(names[name_index], buf, cap, needed);
  });
}

fsdp2_status fsdp2_module_get_parameter_index(fsdp2_module module, const char* name, size_t* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(module);
    const std::string text = capi::read_text(name, capi::kMaxName, "name");
    capi::check_not_null(out, "out");
    *out = capi::parameter_index(*object, text);
  });
}

fsdp2_status fsdp2_module_get_parameter(fsdp2_module module, size_t index, int32_t which,
                                        fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::check_not_null(out, "out");
    capi::enter_to_read(call, *object);
    *out = capi::give_tensor(capi::get_parameter(*object, index, which));
  });
}

fsdp2_status fsdp2_module_zero_grad(fsdp2_module module) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    capi::enter(call, *object);
    capi::zero_grad(*object);
  });
}

fsdp2_status fsdp2_module_set_requires_grad(fsdp2_module module, const char* const* names,
                                            size_t n_names, int32_t flag) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(module);
    const bool trains = capi::read_flag(flag, "flag");
    const auto texts = capi::read_texts(names, n_names, capi::kMaxName, "names");
    capi::enter(call, *object);
    capi::set_requires_grad(*object, texts, trains);
  });
}
