#include "core/ckpt/pickle_value.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace fsdp2::ckpt {

namespace {

bool same_items(const PickleDict& a, const PickleDict& b) {
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

auto fields(const PickleTensor& tensor) {
  return std::tie(tensor.storage, tensor.dtype, tensor.storage_numel, tensor.storage_offset,
                  tensor.shape, tensor.stride, tensor.requires_grad);
}

// Compares two values of the same kind.
struct Same {
  const PickleValue::Variant& other;

  bool operator()(const std::monostate&) const { return true; }
  bool operator()(const PickleBytes& a) const {
    return a.bytes == std::get<PickleBytes>(other).bytes;
  }
  bool operator()(const PickleList& a) const {
    return a.items == std::get<PickleList>(other).items;
  }
  bool operator()(const PickleTuple& a) const {
    return a.items == std::get<PickleTuple>(other).items;
  }
  bool operator()(const PickleSet& a) const { return a.items == std::get<PickleSet>(other).items; }
  bool operator()(const PickleDict& a) const { return same_items(a, std::get<PickleDict>(other)); }
  bool operator()(const PickleTensor& a) const {
    return fields(a) == fields(std::get<PickleTensor>(other));
  }
  bool operator()(const PickleObject& a) const {
    const auto& b = std::get<PickleObject>(other);
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
  std::string operator()(const PickleBytes&) const { return "bytes"; }
  std::string operator()(const PickleList&) const { return "a list"; }
  std::string operator()(const PickleTuple&) const { return "a tuple"; }
  std::string operator()(const PickleDict&) const { return "a dict"; }
  std::string operator()(const PickleSet&) const { return "a set"; }
  std::string operator()(const PickleTensor&) const { return "a tensor"; }
  std::string operator()(const PickleObject& object) const { return object.name; }
};

}  // namespace

PickleValue::PickleValue(bool value) : value(value) {}
PickleValue::PickleValue(int value) : value(int64_t{value}) {}
PickleValue::PickleValue(int64_t value) : value(value) {}
PickleValue::PickleValue(double value) : value(value) {}
PickleValue::PickleValue(const char* text) : value(std::string(text)) {}
PickleValue::PickleValue(std::string text) : value(std::move(text)) {}
PickleValue::PickleValue(PickleBytes value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleList value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleTuple value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleDict value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleSet value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleTensor value) : value(std::move(value)) {}
PickleValue::PickleValue(PickleObject value) : value(std::move(value)) {}

const PickleValue* find(const PickleValue& value, std::string_view key) {
  const auto* dict = value.as<PickleDict>();
  if (dict == nullptr) {
    return nullptr;
  }
  for (const PickleItem& item : dict->items) {
    const auto* text = item.key.as<std::string>();
    if (text != nullptr && *text == key) {
      return &item.value;
    }
  }
  return nullptr;
}

void for_each_child(const PickleValue& value,
                    const std::function<void(const PickleValue&)>& visit) {
  const auto visit_all = [&](const std::vector<PickleValue>& items) {
    for (const PickleValue& item : items) {
      visit(item);
    }
  };
  if (const auto* list = value.as<PickleList>()) {
    visit_all(list->items);
  } else if (const auto* tuple = value.as<PickleTuple>()) {
    visit_all(tuple->items);
  } else if (const auto* set = value.as<PickleSet>()) {
    visit_all(set->items);
  } else if (const auto* object = value.as<PickleObject>()) {
    visit_all(object->arguments);
    visit_all(object->state);
  } else if (const auto* dict = value.as<PickleDict>()) {
    for (const PickleItem& item : dict->items) {
      visit(item.key);
      visit(item.value);
    }
  }
}

std::string kind_name(const PickleValue& value) { return std::visit(KindName{}, value.value); }

PickleTensor describe_tensor(int64_t index, at::ScalarType dtype, at::IntArrayRef shape) {
  PickleTensor tensor;
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

bool operator==(const PickleValue& a, const PickleValue& b) {
  return a.value.index() == b.value.index() && std::visit(Same{b.value}, a.value);
}

}  // namespace fsdp2::ckpt
