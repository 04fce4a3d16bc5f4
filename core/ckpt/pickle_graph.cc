#include "core/ckpt/pickle_graph.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/pickle_dtype.h"
#include "core/ckpt/pickle_utf8.h"
#include "core/ckpt/printable_name.h"
#include "core/ckpt/safetensors_dtype.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kMaxDims = 64;
constexpr size_t kMaxNameBytes = 200;
constexpr char kStoragePrefix[] = "torch.";
constexpr char kUntypedStorage[] = "torch.storage.UntypedStorage";

// Names of functions and classes that stand for plain values.
constexpr const char* kCommonNames[] = {"torch.Size"};
constexpr const char* kTorchSaveNames[] = {
    "torch._utils._rebuild_tensor",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils._rebuild_parameter",
    kUntypedStorage,
    "torch.device",
    "collections.OrderedDict",
    "collections.Counter",
    "builtins.set",
    "_codecs.encode",
};
constexpr const char* kDcpMetadataNames[] = {
    "torch.distributed.checkpoint.metadata.Metadata",
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
    "torch.distributed.checkpoint.metadata.TensorProperties",
    "torch.distributed.checkpoint.metadata.MetadataIndex",
    "torch.distributed.checkpoint.metadata.StorageMeta",
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.serialization._get_layout",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib.PureWindowsPath",
    "pathlib._local.PosixPath",
    "pathlib._local.PurePosixPath",
    "pathlib._local.WindowsPath",
    "pathlib._local.PureWindowsPath",
};
// Legal in files of torch.save, but not values that are handled here.
constexpr const char* kUnhandledNames[] = {
    "torch._utils._rebuild_qtensor",          "torch._utils._rebuild_sparse_tensor",
    "torch._utils._rebuild_nested_tensor",    "torch._utils._rebuild_parameter_with_state",
    "torch._utils._rebuild_wrapper_subclass", "torch._utils._rebuild_meta_tensor_no_storage",
    "torch._tensor._rebuild_from_type_v2",    "torch.distributed.tensor.DTensor",
};

template <size_t N>
bool contains(const char* const (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// The dtype of a name like torch.float32, or of a storage class like torch.FloatStorage.
std::optional<at::ScalarType> dtype_of_name(std::string_view name) {
  return starts_with(name, kStoragePrefix) ? torch_dtype(name.substr(sizeof kStoragePrefix - 1))
                                           : std::nullopt;
}

std::optional<at::ScalarType> dtype_of_storage(std::string_view name) {
  return starts_with(name, kStoragePrefix)
             ? torch_storage_dtype(name.substr(sizeof kStoragePrefix - 1))
             : std::nullopt;
}

bool is_allowed(std::string_view name, PickleNames names) {
  if (contains(kCommonNames, name) || dtype_of_name(name)) {
    return true;
  }
  return names == PickleNames::kTorchSave
             ? contains(kTorchSaveNames, name) || dtype_of_storage(name).has_value()
             : contains(kDcpMetadataNames, name);
}

}  // namespace

// Runs a pickle: a stack of nodes, marks in it, and a memo of nodes by number.
class PickleMachine {
 public:
  using Id = PickleGraph::Id;
  using Kind = PickleGraph::Kind;

  PickleMachine(PickleGraph& graph, std::string_view bytes, PickleNames names,
                const std::string& file)
      : graph_(graph), bytes_(bytes), names_(names), file_(file) {}

  Id run() {
    // One node for each of the values that a pickle puts with a single byte.
    none_ = add({Kind::kNone, 0, {0}});
    false_ = add({Kind::kBool, 0, {0}});
    true_ = add({Kind::kBool, 0, {1}});
    empty_tuple_ = add_container(Kind::kTuple, {});
    check(bytes_.size() <= kMaxPickleBytes, "has {} bytes, at most {} are accepted", bytes_.size(),
          kMaxPickleBytes);
    check(bytes_.size() >= 2 && static_cast<uint8_t>(bytes_[0]) == 0x80,
          "expected a pickle of protocol 2 to 5");
    while (true) {
      operation_ = position_;
      const uint8_t code = take_byte();
      if (code == '.') {
        break;
      }
      execute(code);
    }
    check(stack_.size() == 1 && marks_.empty(), "expected one value at its end, found {}",
          stack_.size());
    check(position_ == bytes_.size(), "{} bytes follow its end", bytes_.size() - position_);
    return stack_.back();
  }

 private:
  using Node = PickleGraph::Node;

  // ---- errors ----

  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) {
      refuse(Code::kCorruptData, fmt::format(text, std::forward<Args>(args)...));
    }
  }

  [[noreturn]] void refuse(Code code, const std::string& why) const {
    fail(code, "{}: its pickle, byte {}: {}", file_, operation_, why);
  }

  // ---- input ----

  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - position_, "expected {} more bytes, {} are left: incomplete?",
          count, bytes_.size() - position_);
    const std::string_view part = bytes_.substr(position_, static_cast<size_t>(count));
    position_ += part.size();
    return part;
  }

  uint8_t take_byte() { return static_cast<uint8_t>(take(1)[0]); }

  uint64_t take_unsigned(size_t count) {
    uint64_t value = 0;
    const std::string_view part = take(count);
    for (size_t i = count; i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(part[i]);
    }
    return value;
  }

  std::string_view take_line() {
    const size_t end = bytes_.substr(position_, kMaxNameBytes).find('\n');
    check(end != std::string_view::npos, "a name without an end");
    const std::string_view line = take(end);
    take(1);
    return line;
  }

  // Little-endian two's complement of any length.
  int64_t take_long() {
    const std::string_view part = take(take_byte());
    if (part.size() > 8) {
      refuse(Code::kUnsupported, "an integer of more than 64 bits");
    }
    uint64_t value = !part.empty() && (part.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = part.size(); i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(part[i]);
    }
    return static_cast<int64_t>(value);
  }

  double take_double() {
    const std::string_view part = take(8);
    uint64_t bits = 0;
    for (const char byte : part) {
      bits = bits << 8 | static_cast<uint8_t>(byte);
    }
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  // ---- nodes ----

  Id add(Node node) {
    graph_.nodes_.push_back(node);
    return static_cast<Id>(graph_.nodes_.size() - 1);
  }

  Id add_container(Kind kind, std::vector<Id> children) {
    Node node{kind, 0, {0}};
    node.reference = graph_.children_.size();
    graph_.children_.push_back(std::move(children));
    return add(node);
  }

  Id add_text(Kind kind, std::string_view text) {
    Node node{kind, static_cast<uint32_t>(text.size()), {0}};
    node.text = text.data();
    return add(node);
  }

  Id add_own_text(Kind kind, std::string text) {
    graph_.texts_.push_back(std::move(text));
    return add_text(kind, graph_.texts_.back());
  }

  Id add_tensor(Kind kind, PickleTensor tensor) {
    Node node{kind, 0, {0}};
    node.reference = graph_.tensors_.size();
    graph_.tensors_.push_back(std::move(tensor));
    return add(node);
  }

  std::vector<Id>& children(Id id) { return graph_.children_[graph_.nodes_[id].reference]; }
  PickleTensor& tensor(Id id) { return graph_.tensors_[graph_.nodes_[id].reference]; }
  Kind kind(Id id) const { return graph_.kind(id); }

  // Counts what is copied: the same argument may be used again and again.
  void spend(size_t count) {
    copied_ += count;
    check(copied_ <= 4 * bytes_.size(), "the same values are used too often");
  }

  // ---- stack ----

  void push(Id id) { stack_.push_back(id); }

  void push_integer(int64_t value) {
    Node node{Kind::kInt, 0, {0}};
    node.number = value;
    push(add(node));
  }

  void push_text(uint64_t count) {
    const std::string_view text = take(count);
    check(is_utf8(text), "text that is not UTF-8");
    push(add_text(Kind::kText, text));
  }

  // Values below a mark belong to whoever set the mark.
  void check_values(size_t count) const {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    check(stack_.size() - floor >= count, "an operation on {} values where there are {}", count,
          stack_.size() - floor);
  }

  Id pop() {
    check_values(1);
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }

  Id top() const {
    check_values(1);
    return stack_.back();
  }

  std::vector<Id> pop_last(size_t count) {
    check_values(count);
    std::vector<Id> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Id> pop_to_mark() {
    check(!marks_.empty(), "an operation on the values since a mark, without a mark");
    std::vector<Id> values = pop_last(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  // ---- operations ----

  void execute(uint8_t code) {
    if (!push_plain(code) && !build_container(code) && !use_memo(code)) {
      use_name(code);
    }
  }

  bool push_plain(uint8_t code) {
    switch (code) {
      case 'N':
        push(none_);
        return true;
      case 0x88:
        push(true_);
        return true;
      case 0x89:
        push(false_);
        return true;
      case 'J':  // BININT
        push_integer(static_cast<int32_t>(take_unsigned(4)));
        return true;
      case 'K':  // BININT1
        push_integer(take_byte());
        return true;
      case 'M':  // BININT2
        push_integer(static_cast<int64_t>(take_unsigned(2)));
        return true;
      case 0x8a:  // LONG1
        push_integer(take_long());
        return true;
      case 'G': {  // BINFLOAT
        Node node{Kind::kFloat, 0, {0}};
        node.real = take_double();
        push(add(node));
        return true;
      }
      case 'X':  // BINUNICODE
        push_text(take_unsigned(4));
        return true;
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING
        push_text(take_byte());
        return true;
      case 0x8d:  // BINUNICODE8
        push_text(take_unsigned(8));
        return true;
      case 'C':  // SHORT_BINBYTES
        push(add_text(Kind::kBytes, take(take_byte())));
        return true;
      case 'B':  // BINBYTES
        push(add_text(Kind::kBytes, take(take_unsigned(4))));
        return true;
      case 0x8e:  // BINBYTES8
        push(add_text(Kind::kBytes, take(take_unsigned(8))));
        return true;
      default:
        return false;
    }
  }

  bool build_container(uint8_t code) {
    switch (code) {
      case '(':
        marks_.push_back(stack_.size());
        return true;
      case ')':
        push(empty_tuple_);
        return true;
      case 't':
        push(add_container(Kind::kTuple, pop_to_mark()));
        return true;
      case 0x85:  // TUPLE1 to TUPLE3
      case 0x86:
      case 0x87:
        push(add_container(Kind::kTuple, pop_last(code - size_t{0x84})));
        return true;
      case ']':
        push(add_container(Kind::kList, {}));
        return true;
      case '}':
        push(add_container(Kind::kDict, {}));
        return true;
      case 0x8f:  // EMPTY_SET
        push(add_container(Kind::kSet, {}));
        return true;
      case 'a':  // APPEND
        extend(Kind::kList, pop_last(1));
        return true;
      case 'e':  // APPENDS
        extend(Kind::kList, pop_to_mark());
        return true;
      case 0x90:  // ADDITEMS
        extend(Kind::kSet, pop_to_mark());
        return true;
      case 's':  // SETITEM
        extend(Kind::kDict, pop_last(2));
        return true;
      case 'u':  // SETITEMS
        extend(Kind::kDict, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  bool use_memo(uint8_t code) {
    switch (code) {
      case 'q':  // BINPUT
        memoize(take_byte());
        return true;
      case 'r':  // LONG_BINPUT
        memoize(take_unsigned(4));
        return true;
      case 0x94:  // MEMOIZE
        memoize(memo_.size());
        return true;
      case 'h':  // BINGET
        recall(take_byte());
        return true;
      case 'j':  // LONG_BINGET
        recall(take_unsigned(4));
        return true;
      default:
        return false;
    }
  }

  void use_name(uint8_t code) {
    switch (code) {
      case 0x80: {  // PROTO
        const int protocol = take_byte();
        check(operation_ == 0 && protocol >= 2 && protocol <= 5,
              "expected a pickle of protocol 2 to 5, found {}", protocol);
        return;
      }
      case 0x95: {  // FRAME: a hint of how many bytes to read at once
        const uint64_t length = take_unsigned(8);
        check(length <= bytes_.size() - position_,
              "a frame of {} bytes where {} are left: incomplete?", length,
              bytes_.size() - position_);
        return;
      }
      case 'c': {  // GLOBAL
        const std::string_view module = take_line();
        push_name(module, take_line());
        return;
      }
      case 0x93: {  // STACK_GLOBAL
        const Id name = pop();
        const Id module = pop();
        check(kind(name) == Kind::kText && kind(module) == Kind::kText, "a name that is no text");
        push_name(graph_.text(module), graph_.text(name));
        return;
      }
      case 'R': {  // REDUCE
        const Id arguments = pop();
        push(call(pop(), arguments));
        return;
      }
      case 0x81: {  // NEWOBJ
        const Id arguments = pop();
        push(make_object(pop(), arguments));
        return;
      }
      case 'b': {  // BUILD
        const Id state = pop();
        set_state(top(), state);
        return;
      }
      case 'Q':  // BINPERSID
        push(storage(pop()));
        return;
      default:
        refuse(Code::kCorruptData,
               fmt::format("an operation 0x{:02x} that plain data does not need, or damage", code));
    }
  }

  void extend(Kind expected, const std::vector<Id>& values) {
    const Id target = top();
    check(kind(target) == expected, "items are put into {}", graph_.kind_name(target));
    check(expected != Kind::kDict || values.size() % 2 == 0, "a key without a value");
    std::vector<Id>& items = children(target);
    items.insert(items.end(), values.begin(), values.end());
  }

  // Numbers are given in order by whoever writes pickles, with few gaps.
  void memoize(uint64_t number) {
    check(number < bytes_.size(), "a memo number of {}", number);
    if (number >= memo_.size()) {
      memo_.resize(static_cast<size_t>(number) + 1, kNoNode);
    }
    memo_[static_cast<size_t>(number)] = top();
  }

  void recall(uint64_t number) {
    check(number < memo_.size() && memo_[static_cast<size_t>(number)] != kNoNode,
          "memo number {} was never set", number);
    push(memo_[static_cast<size_t>(number)]);
  }

  void push_name(std::string_view module, std::string_view name) {
    check(module.size() <= kMaxNameBytes && name.size() <= kMaxNameBytes, "a name of {} bytes",
          module.size() + name.size());
    std::string full(module == "__builtin__" ? "builtins" : module);
    full += '.';
    full += name;
    if (!is_allowed(full, names_)) {
      refuse(Code::kUnsupported,
             contains(kUnhandledNames, full)
                 ? fmt::format("{} is not handled: save plain, dense tensors", full)
                 : fmt::format("it uses {}, which is not among the names that data needs; nothing "
                               "was run",
                               printable_name(full)));
    }
    auto found = named_.find(full);
    if (found == named_.end()) {
      const Id id = add_own_text(Kind::kName, full);
      found = named_.emplace(std::move(full), id).first;
    }
    push(found->second);
  }

  // ---- names as values ----

  const std::vector<Id>& arguments_of(Id function, Id arguments) {
    check(kind(function) == Kind::kName, "a call of {}", graph_.kind_name(function));
    check(kind(arguments) == Kind::kTuple, "a call of {} with {}", graph_.text(function),
          graph_.kind_name(arguments));
    return children(arguments);
  }

  [[noreturn]] void refuse_arguments(std::string_view name) const {
    refuse(Code::kCorruptData, fmt::format("wrong arguments for {}", name));
  }

  Id call(Id function, Id arguments) {
    const std::vector<Id>& values = arguments_of(function, arguments);
    const std::string_view name = graph_.text(function);
    if (name == "torch.Size") {
      return torch_size(values, name);
    }
    if (starts_with(name, "torch._utils.")) {
      return name == "torch._utils._rebuild_parameter" ? parameter(values, name)
                                                       : rebuild_tensor(values, name);
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
    if (name == "torch.device" || name == "torch.serialization._get_layout" ||
        name == "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING") {
      return plain_call(function, values);
    }
    refuse(Code::kCorruptData, fmt::format("{} is called", name));
  }

  Id torch_size(const std::vector<Id>& values, std::string_view name) {
    if (values.size() != 1 || (kind(values[0]) != Kind::kTuple && kind(values[0]) != Kind::kList)) {
      refuse_arguments(name);
    }
    return add_container(Kind::kTuple, checked_integers(values[0], name));
  }

  std::vector<Id> checked_integers(Id list, std::string_view name) {
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

  Id collection(const std::vector<Id>& values, std::string_view name) {
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

  Id encoded_bytes(const std::vector<Id>& values, std::string_view name) {
    if (values.size() != 2 || kind(values[0]) != Kind::kText ||
        !graph_.is_text(values[1], "latin1")) {
      refuse_arguments(name);
    }
    spend(graph_.text(values[0]).size());
    std::string bytes;
    check(latin1_of_utf8(graph_.text(values[0]), bytes), "bytes with characters beyond 255");
    return add_own_text(Kind::kBytes, std::move(bytes));
  }

  Id path(const std::vector<Id>& values, std::string_view name) {
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

  Id plain_call(Id function, const std::vector<Id>& values) {
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

  Id make_object(Id type, Id arguments) {
    const std::vector<Id>& values = arguments_of(type, arguments);
    const std::string_view name = graph_.text(type);
    if (name == "collections.OrderedDict" && values.empty()) {
      return add_container(Kind::kDict, {});
    }
    check(starts_with(name, "torch.distributed.checkpoint.") && values.empty(),
          "an object of {} is made", name);
    return add_container(Kind::kObject, {type});
  }

  void set_state(Id target, Id state) {
    if (kind(target) == Kind::kDict) {
      return;  // attributes of an OrderedDict: a state dict's version numbers
    }
    check(kind(target) == Kind::kObject, "a state for {}", graph_.kind_name(target));
    std::vector<Id>& object = children(target);
    check(object.size() == 1, "two states for one {}", graph_.kind_name(target));
    object.push_back(state);
  }

  // ---- tensors ----

  // ("storage", class, key, where it was, elements; bytes for the untyped)
  Id storage(Id id) {
    constexpr char kName[] = "a storage";
    check(names_ == PickleNames::kTorchSave, "a tensor in metadata");
    if (kind(id) != Kind::kTuple || children(id).size() != 5) {
      refuse_arguments(kName);
    }
    const std::vector<Id>& parts = children(id);
    if (!graph_.is_text(parts[0], "storage") || kind(parts[1]) != Kind::kName ||
        kind(parts[2]) != Kind::kText || kind(parts[3]) != Kind::kText ||
        kind(parts[4]) != Kind::kInt) {
      refuse_arguments(kName);
    }
    PickleTensor storage;
    storage.storage = graph_.text(parts[2]);
    storage.storage_numel = graph_.integer(parts[4]);
    check(!storage.storage.empty() && storage.storage.size() <= 18 &&
              std::all_of(storage.storage.begin(), storage.storage.end(),
                          [](char c) { return c >= '0' && c <= '9'; }),
          "a storage key that is no number: {}", printable_name(storage.storage));
    check(storage.storage_numel >= 0, "a storage of {} elements", storage.storage_numel);
    const std::string_view type = graph_.text(parts[1]);
    const auto dtype = dtype_of_storage(type);
    check(dtype.has_value() || type == kUntypedStorage, "a storage of class {}", type);
    storage.dtype = dtype.value_or(at::ScalarType::Undefined);
    return add_tensor(Kind::kStorage, std::move(storage));
  }

  // (storage, offset, size, stride, requires_grad, hooks[, dtype of v3][, metadata])
  Id rebuild_tensor(const std::vector<Id>& values, std::string_view name) {
    const bool has_dtype = name == "torch._utils._rebuild_tensor_v3";
    const bool is_first_form = name == "torch._utils._rebuild_tensor";
    const size_t least = is_first_form ? 4 : has_dtype ? 7 : 6;
    const size_t most = is_first_form ? 4 : least + 1;
    if (values.size() < least || values.size() > most || kind(values[0]) != Kind::kStorage ||
        kind(values[1]) != Kind::kInt || kind(values[2]) != Kind::kTuple ||
        kind(values[3]) != Kind::kTuple || (!is_first_form && kind(values[4]) != Kind::kBool)) {
      refuse_arguments(name);
    }
    PickleTensor result = tensor(values[0]);
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

  void set_dtype(PickleTensor& result, Id id, std::string_view name) const {
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
  void check_no_lazy_bits(Id metadata) const {
    if (kind(metadata) != Kind::kNone &&
        !(kind(metadata) == Kind::kDict && graph_.children(metadata).empty())) {
      refuse(Code::kUnsupported, "a tensor with metadata: save it after resolve_conj, resolve_neg");
    }
  }

  std::vector<int64_t> integers(Id list, std::string_view name) {
    std::vector<int64_t> numbers;
    for (const Id id : checked_integers(list, name)) {
      numbers.push_back(graph_.integer(id));
    }
    return numbers;
  }

  // Every element lies in the storage, and no number overflows on the way.
  void check_view(const PickleTensor& view) const {
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

  Id parameter(const std::vector<Id>& values, std::string_view name) {
    if (values.size() != 3 || kind(values[0]) != Kind::kTensor || kind(values[1]) != Kind::kBool) {
      refuse_arguments(name);
    }
    PickleTensor result = tensor(values[0]);
    spend(2 * result.shape.size());
    result.requires_grad = graph_.boolean(values[1]);
    return add_tensor(Kind::kTensor, std::move(result));
  }

  static constexpr Id kNoNode = ~Id{0};

  PickleGraph& graph_;
  const std::string_view bytes_;
  const PickleNames names_;
  const std::string& file_;
  size_t position_ = 0;
  size_t operation_ = 0;  // where the operation at hand begins
  size_t copied_ = 0;
  std::vector<Id> stack_;
  std::vector<size_t> marks_;
  std::vector<Id> memo_;
  std::map<std::string, Id> named_;
  Id none_ = 0;
  Id true_ = 0;
  Id false_ = 0;
  Id empty_tuple_ = 0;
};

PickleGraph::PickleGraph(std::string_view bytes, PickleNames names, const std::string& file)
    : input_bytes_(bytes.size()) {
  root_ = PickleMachine(*this, bytes, names, file).run();
}

std::string PickleGraph::kind_name(Id id) const {
  switch (kind(id)) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "a bool";
    case Kind::kInt:
      return "an int";
    case Kind::kFloat:
      return "a float";
    case Kind::kText:
      return "a str";
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kSet:
      return "a set";
    case Kind::kDict:
      return "a dict";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kName:
      return std::string(text(id));
    case Kind::kCall:
    case Kind::kObject:
      return std::string(text(children(id)[0]));
  }
  return "nothing";
}

bool PickleGraph::is_of(Id id, std::string_view name) const {
  return (kind(id) == Kind::kObject || kind(id) == Kind::kCall) && text(children(id)[0]) == name;
}

}  // namespace fsdp2::ckpt
