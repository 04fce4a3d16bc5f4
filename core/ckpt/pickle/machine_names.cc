#include <algorithm>
#include <optional>

#include "core/base/text.h"
#include "core/ckpt/pickle/machine.h"
#include "core/ckpt/pickle/names.h"
#include "core/ckpt/pickle/utf8.h"
#include "core/ckpt/value/printable_name.h"
#include "core/ckpt/value/tensor_spec.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kMaxDims = 64;
constexpr size_t kMaxNameBytes = 200;
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";

}  // namespace

void PickleMachine::push_name(std::string_view module, std::string_view name) {
  check(module.size() <= kMaxNameBytes && name.size() <= kMaxNameBytes, "a name of {} bytes",
        module.size() + name.size());
  std::string full(module == "__builtin__" ? "builtins" : module);
  full += '.';
  full += name;
  auto found = named_.find(full);
  if (found == named_.end()) {
    const Id id =
        is_allowed_name(full, names_) ? add_own_text(Kind::kName, full) : other_name(full);
    found = named_.emplace(std::move(full), id).first;
  }
  push(found->second);
}

PickleMachine::Id PickleMachine::other_name(const std::string& name) {
  if (is_unhandled_name(name)) {
    refuse(Code::kUnsupported, fmt::format("{} is not handled: save plain, dense tensors", name));
  }
  return add_unread(
      fmt::format("it uses {}, which is not among the names that data needs; nothing was run",
                  printable_name(name)));
}

const std::vector<PickleMachine::Id>& PickleMachine::arguments_of(Id function, Id arguments) {
  check(kind(function) == Kind::kName, "a call of {}", graph_.kind_name(function));
  check(kind(arguments) == Kind::kTuple, "a call of {} with {}", graph_.text(function),
        graph_.kind_name(arguments));
  return children(arguments);
}

void PickleMachine::refuse_arguments(std::string_view name) const {
  refuse(Code::kCorruptData, fmt::format("wrong arguments for {}", name));
}

// What is made with something that is not read is as little read.
PickleMachine::Id PickleMachine::call(Id function, Id arguments) {
  if (kind(function) == Kind::kUnread) {
    return function;
  }
  const std::vector<Id>& values = arguments_of(function, arguments);
  spend(values.size());
  const auto unread = std::find_if(values.begin(), values.end(),
                                   [this](Id value) { return kind(value) == Kind::kUnread; });
  if (unread != values.end()) {
    return *unread;
  }
  const std::string_view name = graph_.text(function);
  if (name == "torch.Size") {
    return torch_size(values, name);
  }
  if (starts_with(name, "torch._utils.")) {
    return starts_with(name, kRebuildParameter) ? parameter(values, name)
                                                : rebuild_tensor(values, name);
  }
  if (starts_with(name, "numpy.")) {
    return numpy_value(function, values);
  }
  if (name == kTypedTensor) {
    return typed_tensor(values, name);
  }
  if (starts_with(name, "collections.") || name == "builtins.set") {
    return collection(values, name);
  }
  if (name == "_codecs.encode") {
    return encoded_bytes(values, name);
  }
  if (starts_with(name, "pathlib.")) {
    return path(values, name);
  }
  if (starts_with(name, "torch.jit._pickle.")) {
    return typed_container(values, name);
  }
  if (name == "torch.device" || name == "torch.serialization._get_layout" ||
      name == "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING") {
    return plain_call(function, values);
  }
  refuse(Code::kCorruptData, fmt::format("{} is called", name));
}

PickleMachine::Id PickleMachine::torch_size(const std::vector<Id>& values, std::string_view name) {
  if (values.size() != 1 || (kind(values[0]) != Kind::kTuple && kind(values[0]) != Kind::kList)) {
    refuse_arguments(name);
  }
  return add_container(Kind::kTuple, checked_integers(values[0], name));
}

std::vector<PickleMachine::Id> PickleMachine::checked_integers(Id list, std::string_view name) {
  std::vector<Id> numbers = children(list);
  for (const Id number : numbers) {
    if (kind(number) != Kind::kInt) {
      refuse_arguments(name);
    }
  }
  check(numbers.size() <= kMaxDims, "a size of {} dims", numbers.size());
  spend(numbers.size());
  return numbers;
}

PickleMachine::Id PickleMachine::collection(const std::vector<Id>& values, std::string_view name) {
  if (name == "collections.OrderedDict" && values.empty()) {
    return add_container(Kind::kDict, {});
  }
  if (name == "collections.Counter" && values.size() == 1 && kind(values[0]) == Kind::kDict) {
    return values[0];
  }
  if (name == "builtins.set" && values.size() == 1 && kind(values[0]) == Kind::kList) {
    spend(children(values[0]).size());
    return add_container(Kind::kSet, std::vector<Id>(children(values[0])));
  }
  refuse_arguments(name);
}

// (container[, its type])
PickleMachine::Id PickleMachine::typed_container(const std::vector<Id>& values,
                                                 std::string_view name) {
  const bool is_container = !values.empty() && values.size() <= 2 &&
                            (kind(values[0]) == Kind::kList || kind(values[0]) == Kind::kDict);
  if (!is_container || (values.size() == 2 && kind(values[1]) != Kind::kText)) {
    refuse_arguments(name);
  }
  return values[0];
}

PickleMachine::Id PickleMachine::encoded_bytes(const std::vector<Id>& values,
                                               std::string_view name) {
  if (values.size() != 2 || kind(values[0]) != Kind::kText ||
      !graph_.is_text(values[1], "latin1")) {
    refuse_arguments(name);
  }
  spend(graph_.text(values[0]).size());
  std::string bytes;
  check(latin1_of_utf8(graph_.text(values[0]), bytes), "bytes with characters beyond 255");
  return add_own_text(Kind::kBytes, std::move(bytes));
}

PickleMachine::Id PickleMachine::path(const std::vector<Id>& values, std::string_view name) {
  std::string joined;
  for (const Id part : values) {
    if (kind(part) != Kind::kText) {
      refuse_arguments(name);
    }
    spend(graph_.text(part).size());
    joined += joined.empty() || joined.back() == '/' ? "" : "/";
    joined += graph_.text(part);
  }
  return add_own_text(Kind::kText, std::move(joined));
}

PickleMachine::Id PickleMachine::plain_call(Id function, const std::vector<Id>& values) {
  std::vector<Id> call{function};
  for (const Id value : values) {
    if (kind(value) != Kind::kText && kind(value) != Kind::kInt) {
      refuse_arguments(graph_.text(function));
    }
    call.push_back(value);
  }
  check(call.size() == 2 || call.size() == 3, "{} arguments for {}", call.size() - 1,
        graph_.text(function));
  return add_container(Kind::kCall, std::move(call));
}

PickleMachine::Id PickleMachine::make_object(Id type, Id arguments) {
  if (kind(type) == Kind::kUnread) {
    return type;
  }
  const std::vector<Id>& values = arguments_of(type, arguments);
  const std::string_view name = graph_.text(type);
  if (name == "collections.OrderedDict" && values.empty()) {
    return add_container(Kind::kDict, {});
  }
  if (is_dtensor_class(name) && !values.empty()) {  // a named tuple
    return add_unread(fmt::format("{} outside of a tensor", name));
  }
  check((starts_with(name, "torch.distributed.checkpoint.") || is_script_class(name) ||
         is_dtensor_class(name)) &&
            values.empty(),
        "an object of {} is made", name);
  return add_container(Kind::kObject, {type});
}

// (class, arguments, keywords): no data of torch's needs it.
void PickleMachine::make_object_with_keywords() {
  pop();
  pop();
  check(kind(top()) == Kind::kUnread, "an object of {} is made with keywords",
        graph_.kind_name(top()));
}

void PickleMachine::set_state(Id target, Id state) {
  if (kind(target) == Kind::kDict || kind(target) == Kind::kUnread) {
    return;  // attributes of an OrderedDict: a state dict's version numbers
  }
  if (graph_.is_of(target, kNumpyDtype)) {
    set_numpy_order(target, state);
    return;
  }
  check(kind(target) == Kind::kObject, "a state for {}", graph_.kind_name(target));
  check(children(target).size() == 1, "two states for one {}", graph_.kind_name(target));
  put_into(target, {state});
}

// ("storage", class, key, where it was, elements; bytes for the untyped)
PickleMachine::Id PickleMachine::storage(Id id) {
  constexpr char kName[] = "a storage";
  check(names_ != PickleNames::kDcpMetadata, "a tensor in metadata");
  if (kind(id) != Kind::kTuple || children(id).size() != 5) {
    refuse_arguments(kName);
  }
  const std::vector<Id>& parts = children(id);
  if (!graph_.is_text(parts[0], "storage") || kind(parts[1]) != Kind::kName ||
      kind(parts[2]) != Kind::kText || kind(parts[3]) != Kind::kText ||
      kind(parts[4]) != Kind::kInt) {
    refuse_arguments(kName);
  }
  StoredTensor storage;
  storage.storage = graph_.text(parts[2]);
  storage.storage_numel = graph_.integer(parts[4]);
  check(!storage.storage.empty() && storage.storage.size() <= 18 &&
            std::all_of(storage.storage.begin(), storage.storage.end(),
                        [](char c) { return c >= '0' && c <= '9'; }),
        "a storage key that is no number: {}", printable_name(storage.storage));
  check(storage.storage_numel >= 0, "a storage of {} elements", storage.storage_numel);
  const std::string_view type = graph_.text(parts[1]);
  const auto dtype = dtype_of_storage_name(type);
  check(dtype.has_value() || type == kUntypedStorage, "a storage of class {}", type);
  storage.dtype = dtype.value_or(at::ScalarType::Undefined);
  return add_tensor(Kind::kStorage, std::move(storage));
}

// (storage, offset, size, stride, requires_grad, hooks[, dtype of v3][, metadata])
PickleMachine::Id PickleMachine::rebuild_tensor(const std::vector<Id>& values,
                                                std::string_view name) {
  const bool has_dtype = name == "torch._utils._rebuild_tensor_v3";
  const bool is_first_form = name == "torch._utils._rebuild_tensor";
  const size_t least = is_first_form ? 4 : has_dtype ? 7 : 6;
  const size_t most = is_first_form ? 4 : least + 1;
  if (values.size() < least || values.size() > most || kind(values[0]) != Kind::kStorage ||
      kind(values[1]) != Kind::kInt || kind(values[2]) != Kind::kTuple ||
      kind(values[3]) != Kind::kTuple || (!is_first_form && kind(values[4]) != Kind::kBool)) {
    refuse_arguments(name);
  }
  StoredTensor result = tensor(values[0]);
  if (has_dtype) {
    set_dtype(result, values[6], name);
  }
  check(result.dtype != at::ScalarType::Undefined, "an untyped storage and no dtype");
  if (values.size() == most && !is_first_form) {
    check_no_lazy_bits(values.back());
  }
  result.storage_offset = graph_.integer(values[1]);
  result.shape = integers(values[2], name);
  result.stride = integers(values[3], name);
  result.requires_grad = !is_first_form && graph_.boolean(values[4]);
  check_view(result);
  return add_tensor(Kind::kTensor, std::move(result));
}

void PickleMachine::set_dtype(StoredTensor& result, Id id, std::string_view name) const {
  const auto dtype = kind(id) == Kind::kName ? dtype_of_name(graph_.text(id)) : std::nullopt;
  if (!dtype) {
    refuse_arguments(name);
  }
  const auto item_size = static_cast<int64_t>(c10::elementSize(*dtype));
  const bool in_bytes = result.dtype == at::ScalarType::Undefined;
  check(in_bytes || result.dtype == *dtype, "a tensor of another dtype than its storage");
  check(!in_bytes || result.storage_numel % item_size == 0,
        "a storage of {} bytes for elements of {}", result.storage_numel, item_size);
  result.storage_numel /= in_bytes ? item_size : 1;
  result.dtype = *dtype;
}

// Conjugation and negation that was put off, which the bytes do not show.
void PickleMachine::check_no_lazy_bits(Id metadata) const {
  if (kind(metadata) != Kind::kNone &&
      !(kind(metadata) == Kind::kDict && graph_.children(metadata).empty())) {
    refuse(Code::kUnsupported, "a tensor with metadata: save it after resolve_conj, resolve_neg");
  }
}

std::vector<int64_t> PickleMachine::integers(Id list, std::string_view name) {
  std::vector<int64_t> numbers;
  for (const Id id : checked_integers(list, name)) {
    numbers.push_back(graph_.integer(id));
  }
  return numbers;
}

// Every element lies in the storage, and no number overflows on the way.
void PickleMachine::check_view(const StoredTensor& view) const {
  check(view.shape.size() == view.stride.size(), "a tensor of {} sizes and {} strides",
        view.shape.size(), view.stride.size());
  check(tensor_bytes(view.dtype, view.shape) >= 0, "a tensor whose shape is too large");
  check(view.storage_offset >= 0 && view.storage_offset <= view.storage_numel,
        "a tensor at {} of a storage of {} elements", view.storage_offset, view.storage_numel);
  int64_t last = view.storage_offset;
  bool empty = false;
  bool fits = true;
  for (size_t dim = 0; dim < view.shape.size(); ++dim) {
    int64_t span = 0;
    empty = empty || view.shape[dim] == 0;
    fits = fits && view.stride[dim] >= 0 &&
           !__builtin_mul_overflow(std::max<int64_t>(view.shape[dim] - 1, 0), view.stride[dim],
                                   &span) &&
           !__builtin_add_overflow(last, span, &last);
  }
  check(fits && (empty || last < view.storage_numel),
        "a tensor that reaches beyond its storage of {} elements", view.storage_numel);
}

// (tensor, requires_grad, hooks[, attributes])
PickleMachine::Id PickleMachine::parameter(const std::vector<Id>& values, std::string_view name) {
  if (values.size() != (name == kRebuildParameter ? 3 : 4) || kind(values[0]) != Kind::kTensor ||
      kind(values[1]) != Kind::kBool) {
    refuse_arguments(name);
  }
  StoredTensor result = tensor(values[0]);
  spend(2 * result.shape.size());
  result.requires_grad = graph_.boolean(values[1]);
  return add_tensor(Kind::kTensor, std::move(result));
}

}  // namespace fsdp2::ckpt
