#include "core/exported/script/script_objects.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"
#include "core/nn/module.h"

namespace fsdp2::exported {

namespace {

using c10::IValue;
using c10::TypeKind;
using ckpt::printable_name;
using ckpt::PythonValue;
using ckpt::StoredTensor;

// Equal for the names of one tensor.
std::string identity_of(const StoredTensor& tensor) {
  return fmt::format("{} {} {} {} {}", tensor.storage, static_cast<int>(tensor.dtype),
                     tensor.storage_offset, fmt::join(tensor.shape, "x"),
                     fmt::join(tensor.stride, "x"));
}

std::string inside(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

ScriptObject ScriptObjects::make_root() {
  const auto* object = archive_.root().as<ckpt::PythonObject>();
  FSDP2_CHECK(object != nullptr, Code::kUnsupported, "{}: data.pkl holds {}, expected a module",
              archive_.path(), ckpt::kind_name(archive_.root()));
  const c10::ClassTypePtr type = types_.find_class(object->name);
  FSDP2_CHECK(type->is_module(), Code::kUnsupported, "{}: {} is no module", archive_.path(),
              printable_name(object->name));
  return make_object(archive_.root(), type, "").toObject();
}

IValue ScriptObjects::make(const PythonValue& value, const c10::TypePtr& type,
                           const std::string& path) {
  switch (type->kind()) {
    case TypeKind::OptionalType:
      return value.is_none()
                 ? IValue()
                 : make(value, type->expectRef<c10::OptionalType>().getElementType(), path);
    case TypeKind::NoneType:
      if (value.is_none()) {
        return {};
      }
      break;
    case TypeKind::TensorType:
      if (const auto* tensor = value.as<StoredTensor>()) {
        return tensor_of(*tensor);
      }
      break;
    case TypeKind::BoolType:
      if (const auto* flag = value.as<bool>()) {
        return *flag;
      }
      break;
    case TypeKind::IntType:
      if (const auto* number = value.as<int64_t>()) {
        return *number;
      }
      break;
    case TypeKind::FloatType:
      if (const auto* number = value.as<double>()) {
        return *number;
      }
      break;
    case TypeKind::StringType:
      if (const auto* text = value.as<std::string>()) {
        return *text;
      }
      break;
    case TypeKind::DeviceObjType:
      return make_device(value, path);
    case TypeKind::ListType:
      return make_list(value, type->expectRef<c10::ListType>(), path);
    case TypeKind::DictType:
      return make_dict(value, type->expectRef<c10::DictType>(), path);
    case TypeKind::TupleType:
      return make_tuple(value, type->expectRef<c10::TupleType>(), path);
    case TypeKind::ClassType:
    case TypeKind::InterfaceType:
      return make_object(value, type, path);
    default:
      fail(Code::kUnsupported, "{}: {} is of type {}, which is not read", archive_.path(),
           printable_name(path), type->str());
  }
  refuse(value, *type, path);
}

void ScriptObjects::refuse(const PythonValue& value, const c10::Type& type,
                           const std::string& path) const {
  fail(Code::kCorruptData, "{}: {} is {}, expected {}", archive_.path(), printable_name(path),
       ckpt::kind_name(value), type.str());
}

IValue ScriptObjects::make_list(const PythonValue& value, const c10::ListType& type,
                                const std::string& path) {
  const auto* list = value.as<ckpt::PythonList>();
  if (list == nullptr) {
    refuse(value, type, path);
  }
  c10::impl::GenericList made(type.getElementType());
  for (const PythonValue& item : list->items) {
    made.push_back(make(item, type.getElementType(), path));
  }
  return made;
}

IValue ScriptObjects::make_dict(const PythonValue& value, const c10::DictType& type,
                                const std::string& path) {
  const auto* dict = value.as<ckpt::PythonDict>();
  const TypeKind keys = type.getKeyType()->kind();
  if (dict == nullptr) {
    refuse(value, type, path);
  }
  FSDP2_CHECK(keys == TypeKind::StringType || keys == TypeKind::IntType, Code::kUnsupported,
              "{}: {} is a {}: expected keys that are texts or ints", archive_.path(),
              printable_name(path), type.str());
  c10::impl::GenericDict made(type.getKeyType(), type.getValueType());
  for (const ckpt::PythonItem& item : dict->items) {
    made.insert_or_assign(make(item.key, type.getKeyType(), path),
                          make(item.value, type.getValueType(), path));
  }
  return made;
}

IValue ScriptObjects::make_tuple(const PythonValue& value, const c10::TupleType& type,
                                 const std::string& path) {
  const auto* tuple = value.as<ckpt::PythonTuple>();
  if (tuple == nullptr || tuple->items.size() != type.elements().size() || type.schema()) {
    refuse(value, type, path);
  }
  std::vector<IValue> made;
  for (size_t i = 0; i < tuple->items.size(); ++i) {
    made.push_back(make(tuple->items[i], type.elements()[i], path));
  }
  return c10::ivalue::Tuple::create(std::move(made));
}

// The module begins on the host, whichever device it was saved on.
IValue ScriptObjects::make_device(const PythonValue& value, const std::string& path) const {
  const auto* object = value.as<ckpt::PythonObject>();
  FSDP2_CHECK(object != nullptr && object->name == "torch.device", Code::kCorruptData,
              "{}: {} is {}, expected a device", archive_.path(), printable_name(path),
              ckpt::kind_name(value));
  return at::Device(at::kCPU);
}

IValue ScriptObjects::make_object(const PythonValue& value, const c10::TypePtr& type,
                                  const std::string& path) {
  const auto* object = value.as<ckpt::PythonObject>();
  if (object == nullptr || object->form != ckpt::PythonObject::Form::kNew ||
      object->state.size() != 1) {
    refuse(value, *type, path);
  }
  const c10::ClassTypePtr found = types_.find_class(object->name);
  if (!found->isSubtypeOf(*type)) {
    refuse(value, *type, path);
  }
  FSDP2_CHECK(found->findMethod("__setstate__") == nullptr, Code::kUnsupported,
              "{}: {} has a method __setstate__, which would run while the file is read: expected "
              "modules without, which are not quantized",
              archive_.path(), printable_name(object->name));
  ScriptObject made =
      c10::ivalue::Object::create(c10::StrongTypePtr(types_.unit(), found), found->numAttributes());
  for (size_t slot = 0; slot < found->numAttributes(); ++slot) {
    const std::string name = found->getAttributeName(slot);
    const std::string place = inside(path, name);
    const PythonValue* held = ckpt::find(object->state.front(), name);
    FSDP2_CHECK(held != nullptr, Code::kCorruptData, "{}: {} has no value", archive_.path(),
                printable_name(place));
    const auto* tensor = held->as<StoredTensor>();
    const bool is_parameter = found->is_module() && found->is_parameter(slot) && tensor != nullptr;
    made->setSlot(slot, is_parameter ? IValue(parameter_of(*tensor, place))
                                     : make(*held, found->getAttribute(slot), place));
  }
  return made;
}

at::Tensor ScriptObjects::tensor_of(const StoredTensor& value) {
  at::Tensor& tensor = tensors_[identity_of(value)];
  if (!tensor.defined()) {
    tensor = archive_.read(value);
  }
  return tensor;
}

at::Tensor ScriptObjects::parameter_of(const StoredTensor& value, const std::string& path) {
  at::Tensor& tensor = deferred_[identity_of(value)];
  if (!tensor.defined()) {
    FSDP2_CHECK(at::isFloatingType(value.dtype), Code::kUnsupported,
                "{}: the parameter {} is of type {}, expected floats", archive_.path(),
                printable_name(path), c10::toString(value.dtype));
    tensor = in_context(archive_.path(), [&] {
      return nn::deferred_parameter(value.shape, dtype_.value_or(value.dtype));
    });
    tensor.set_requires_grad(value.requires_grad);
  }
  parameters_.push_back({path, value});
  return tensor;
}

}  // namespace fsdp2::exported
