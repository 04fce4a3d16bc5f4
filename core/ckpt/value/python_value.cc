#include "core/ckpt/value/python_value.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::ckpt {

namespace {

bool same_items(const PythonDict& a, const PythonDict& b) {
  if (a.items.size() != b.items.size()) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    if (a.items[i].key != b.items[i].key || a.items[i].value != b.items[i].value) {
      return false;
    }
  }
  return true;
}

bool same_part(const TensorPart* a, const TensorPart* b) {
  return a == b ||
         (a != nullptr && b != nullptr && a->shape == b->shape && a->offsets == b->offsets);
}

auto fields(const StoredTensor& tensor) {
  return std::tie(tensor.storage, tensor.dtype, tensor.storage_numel, tensor.storage_offset,
                  tensor.shape, tensor.stride, tensor.requires_grad);
}

// Compares two values of the same kind.
struct Same {
  const PythonValue::Variant& other;

  bool operator()(const std::monostate&) const { return true; }
  bool operator()(const PythonBytes& a) const {
    return a.bytes == std::get<PythonBytes>(other).bytes;
  }
  bool operator()(const PythonList& a) const {
    return a.items == std::get<PythonList>(other).items;
  }
  bool operator()(const PythonTuple& a) const {
    return a.items == std::get<PythonTuple>(other).items;
  }
  bool operator()(const PythonSet& a) const { return a.items == std::get<PythonSet>(other).items; }
  bool operator()(const PythonDict& a) const { return same_items(a, std::get<PythonDict>(other)); }
  bool operator()(const StoredTensor& a) const {
    const auto& b = std::get<StoredTensor>(other);
    return fields(a) == fields(b) && same_part(a.part.get(), b.part.get());
  }
  bool operator()(const PythonObject& a) const {
    const auto& b = std::get<PythonObject>(other);
    return a.name == b.name && a.form == b.form && a.arguments == b.arguments && a.state == b.state;
  }
  template <typename Plain>
  bool operator()(const Plain& a) const {
    return a == std::get<Plain>(other);
  }
};

struct KindName {
  std::string operator()(const std::monostate&) const { return "None"; }
  std::string operator()(const bool&) const { return "a bool"; }
  std::string operator()(const int64_t&) const { return "an int"; }
  std::string operator()(const double&) const { return "a float"; }
  std::string operator()(const std::string&) const { return "a str"; }
  std::string operator()(const PythonBytes&) const { return "bytes"; }
  std::string operator()(const PythonList&) const { return "a list"; }
  std::string operator()(const PythonTuple&) const { return "a tuple"; }
  std::string operator()(const PythonDict&) const { return "a dict"; }
  std::string operator()(const PythonSet&) const { return "a set"; }
  std::string operator()(const StoredTensor&) const { return "a tensor"; }
  std::string operator()(const PythonObject& object) const { return object.name; }
};

}  // namespace

PythonValue::PythonValue(bool value) : value(value) {}
PythonValue::PythonValue(int value) : value(int64_t{value}) {}
PythonValue::PythonValue(int64_t value) : value(value) {}
PythonValue::PythonValue(double value) : value(value) {}
PythonValue::PythonValue(const char* text) : value(std::string(text)) {}
PythonValue::PythonValue(std::string text) : value(std::move(text)) {}
PythonValue::PythonValue(PythonBytes value) : value(std::move(value)) {}
PythonValue::PythonValue(PythonList value) : value(std::move(value)) {}
PythonValue::PythonValue(PythonTuple value) : value(std::move(value)) {}
PythonValue::PythonValue(PythonDict value) : value(std::move(value)) {}
PythonValue::PythonValue(PythonSet value) : value(std::move(value)) {}
PythonValue::PythonValue(StoredTensor value) : value(std::move(value)) {}
PythonValue::PythonValue(PythonObject value) : value(std::move(value)) {}

const PythonValue* find(const PythonValue& value, std::string_view key) {
  const auto* dict = value.as<PythonDict>();
  if (dict == nullptr) {
    return nullptr;
  }
  for (const PythonItem& item : dict->items) {
    const auto* text = item.key.as<std::string>();
    if (text != nullptr && *text == key) {
      return &item.value;
    }
  }
  return nullptr;
}

void for_each_child(const PythonValue& value,
                    const std::function<void(const PythonValue&)>& visit) {
  const auto visit_all = [&](const std::vector<PythonValue>& items) {
    for (const PythonValue& item : items) {
      visit(item);
    }
  };
  if (const auto* list = value.as<PythonList>()) {
    visit_all(list->items);
  } else if (const auto* tuple = value.as<PythonTuple>()) {
    visit_all(tuple->items);
  } else if (const auto* set = value.as<PythonSet>()) {
    visit_all(set->items);
  } else if (const auto* object = value.as<PythonObject>()) {
    visit_all(object->arguments);
    visit_all(object->state);
  } else if (const auto* dict = value.as<PythonDict>()) {
    for (const PythonItem& item : dict->items) {
      visit(item.key);
      visit(item.value);
    }
  }
}

void check_is_read(const PythonValue& value, const std::string& label) {
  const auto* object = value.as<PythonObject>();
  FSDP2_CHECK(object == nullptr || object->form != PythonObject::Form::kUnread, Code::kUnsupported,
              "{}: {}", label, object->name);
  for_each_child(value, [&](const PythonValue& child) { check_is_read(child, label); });
}

std::string kind_name(const PythonValue& value) { return std::visit(KindName{}, value.value); }

StoredTensor describe_tensor(int64_t index, at::ScalarType dtype, at::IntArrayRef shape) {
  StoredTensor tensor;
  tensor.storage = std::to_string(index);
  tensor.dtype = dtype;
  tensor.shape = shape.vec();
  tensor.stride.assign(shape.size(), 1);
  int64_t numel = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    tensor.stride[dim] =
        dim + 1 < shape.size() ? tensor.stride[dim + 1] * std::max<int64_t>(shape[dim + 1], 1) : 1;
    numel *= shape[dim];
  }
  tensor.storage_numel = numel;
  return tensor;
}

bool operator==(const PythonValue& a, const PythonValue& b) {
  return a.value.index() == b.value.index() && std::visit(Same{b.value}, a.value);
}

}  // namespace fsdp2::ckpt
