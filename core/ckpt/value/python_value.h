// A Python value as data: what a pickle holds once it is read, and what a pickle is written from.
//
//   PythonValue state = PythonDict{{{"step", 3}, {"betas", PythonTuple{{0.9, 0.999}}}}};
//   const PythonValue* step = find(state, "step");
//   if (step != nullptr && step->as<int64_t>() != nullptr) ...
//
// Reading (pickle/reader.h) never makes anything else of a file, whatever the file says: a class or
// function that a pickle names is either on the list of those known, and then stands here as a
// value, or an error.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fsdp2::ckpt {

struct PythonValue;
struct PythonItem;

struct PythonBytes {
  std::string bytes;
};

struct PythonList {
  std::vector<PythonValue> items;
};

struct PythonTuple {
  std::vector<PythonValue> items;
};

struct PythonSet {
  std::vector<PythonValue> items;
};

// Keys in the order in which they were put in; the reader leaves none twice.
struct PythonDict {
  std::vector<PythonItem> items;
};

// Where a part lies in the whole tensor.
struct TensorPart {
  std::vector<int64_t> shape;    // of the whole
  std::vector<int64_t> offsets;  // of the part's first element
};

// A tensor whose bytes stand elsewhere, in a record of a torch.save archive (torch/archive.h).
// Tensors with the same key share memory: tied weights, views of one buffer.
struct StoredTensor {
  std::string storage;  // key of its record, decimal digits
  at::ScalarType dtype = at::kFloat;
  int64_t storage_numel = 0;   // of the record, in elements of dtype
  int64_t storage_offset = 0;  // of the first element, in elements
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;  // in elements, as long as shape
  bool requires_grad = false;
  std::shared_ptr<const TensorPart> part;  // of a DTensor, what one rank has; null: it is whole
};

// A global name, or an object made by one.
//   kName  torch.float32                     a dtype, a class
//   kCall  torch.device("cpu")               arguments
//   kNew   Metadata.__new__() + its state    arguments, and at most one state
//   kUnread   what another program's classes are needed for: `name` says why it was not read
struct PythonObject {
  enum class Form { kName, kCall, kNew, kUnread };

  std::string name;  // module and name, "torch.float32"
  Form form = Form::kName;
  std::vector<PythonValue> arguments;
  std::vector<PythonValue> state;  // none or one
};

struct PythonValue {
  // std::monostate is None.
  using Variant =
      std::variant<std::monostate, bool, int64_t, double, std::string, PythonBytes, PythonList,
                   PythonTuple, PythonDict, PythonSet, StoredTensor, PythonObject>;

  PythonValue() = default;
  PythonValue(bool value);
  PythonValue(int value);
  PythonValue(int64_t value);
  PythonValue(double value);
  PythonValue(const char* text);
  PythonValue(std::string text);
  PythonValue(PythonBytes value);
  PythonValue(PythonList value);
  PythonValue(PythonTuple value);
  PythonValue(PythonDict value);
  PythonValue(PythonSet value);
  PythonValue(StoredTensor value);
  PythonValue(PythonObject value);

  bool is_none() const { return std::holds_alternative<std::monostate>(value); }
  // nullptr if it is of another kind.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&value);
  }
  template <typename T>
  T* as() {
    return std::get_if<T>(&value);
  }

  Variant value;
};

struct PythonItem {
  PythonValue key;
  PythonValue value;
};

// The value under a text key; nullptr if `value` is no dict or has no such key.
const PythonValue* find(const PythonValue& value, std::string_view key);

// kUnsupported, saying why, if the value or one inside it was not read. `label` is for the message.
void check_is_read(const PythonValue& value, const std::string& label);

// What kind of value it is, for messages: "an int", "a dict", "torch.Size".
std::string kind_name(const PythonValue& value);

// A contiguous tensor with memory of its own, to be written as record `index`.
StoredTensor describe_tensor(int64_t index, at::ScalarType dtype, at::IntArrayRef shape);

// Calls visit with each value that stands directly in a list, tuple, set, dict (keys too) or
// object.
void for_each_child(const PythonValue& value, const std::function<void(const PythonValue&)>& visit);

bool operator==(const PythonValue& a, const PythonValue& b);
inline bool operator!=(const PythonValue& a, const PythonValue& b) { return !(a == b); }

}  // namespace fsdp2::ckpt
