#include "core/ckpt/pickle/machine.h"

#include <algorithm>
#include <cstring>

#include "core/base/text.h"
#include "core/ckpt/pickle/utf8.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kMaxLineBytes = 200;
// What the values of a pickle may take in memory whatever its size, and for each of its bytes. The
// metadata and state dicts that torch writes take 7 to 9 bytes for each, a list of pairs of small
// numbers 16.
constexpr size_t kFreeMemory = size_t{1} << 24;
constexpr size_t kMemoryForEachByte = 32;
constexpr size_t kHeapOverhead = 16;  // of a piece of memory

}  // namespace

PickleMachine::Id PickleMachine::run() {
  // One node for each of the values that a pickle puts with a single byte.
  none_ = add({Kind::kNone, 0, 0, {0}});
  false_ = add({Kind::kBool, 0, 0, {0}});
  true_ = add({Kind::kBool, 0, 0, {1}});
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

void PickleMachine::refuse(Code code, const std::string& why) const {
  fail(code, "{}: its pickle, byte {}: {}", file_, operation_, why);
}

std::string_view PickleMachine::take(uint64_t count) {
  check(count <= bytes_.size() - position_, "expected {} more bytes, {} are left: incomplete?",
        count, bytes_.size() - position_);
  const std::string_view part = bytes_.substr(position_, static_cast<size_t>(count));
  position_ += part.size();
  return part;
}

uint64_t PickleMachine::take_unsigned(size_t count) {
  uint64_t value = 0;
  const std::string_view part = take(count);
  for (size_t i = count; i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(part[i]);
  }
  return value;
}

std::string_view PickleMachine::take_line() {
  const size_t end = bytes_.substr(position_, kMaxLineBytes).find('\n');
  check(end != std::string_view::npos, "a name without an end");
  const std::string_view line = take(end);
  take(1);
  return line;
}

// Little-endian two's complement of any length.
PickleMachine::Id PickleMachine::add_long() {
  const std::string_view part = take(take_byte());
  if (part.size() > 8) {
    return add_unread("an integer of more than 64 bits");
  }
  uint64_t value = !part.empty() && (part.back() & 0x80) != 0 ? ~uint64_t{0} : 0;
  for (size_t i = part.size(); i-- > 0;) {
    value = value << 8 | static_cast<uint8_t>(part[i]);
  }
  return add_integer(static_cast<int64_t>(value));
}

double PickleMachine::take_double() {
  const std::string_view part = take(8);
  uint64_t bits = 0;
  for (const char byte : part) {
    bits = bits << 8 | static_cast<uint8_t>(byte);
  }
  double value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

void PickleMachine::charge(size_t bytes) {
  memory_ += bytes;
  check(memory_ <= kFreeMemory + kMemoryForEachByte * bytes_.size(),
        "holds more values than a file of {} bytes can be meant to", bytes_.size());
}

PickleMachine::Id PickleMachine::add(Node node) {
  charge(sizeof node);
  graph_.nodes_.push_back(node);
  return static_cast<Id>(graph_.nodes_.size() - 1);
}

PickleMachine::Id PickleMachine::add_container(Kind kind, std::vector<Id> children) {
  charge(sizeof children + kHeapOverhead + sizeof(Id) * children.size());
  Node node{kind, depth_above(children), 0, {0}};
  node.reference = graph_.children_.size();
  graph_.children_.push_back(std::move(children));
  return add(node);
}

// Containers are taken apart by recursion. One that lies in itself is found then.
uint16_t PickleMachine::depth_above(const std::vector<Id>& children) const {
  size_t depth = 0;
  for (const Id child : children) {
    depth = std::max<size_t>(depth, graph_.nodes_[child].depth + size_t{1});
  }
  check(depth <= kMaxPickleDepth, "values nested more than {} deep, or inside themselves",
        kMaxPickleDepth);
  return static_cast<uint16_t>(depth);
}

void PickleMachine::put_into(Id container, const std::vector<Id>& values) {
  charge(2 * sizeof(Id) * values.size());  // a vector grows by doubling
  uint16_t& depth = graph_.nodes_[container].depth;
  depth = std::max(depth, depth_above(values));
  std::vector<Id>& items = children(container);
  items.insert(items.end(), values.begin(), values.end());
}

PickleMachine::Id PickleMachine::add_text(Kind kind, std::string_view text) {
  Node node{kind, 0, static_cast<uint32_t>(text.size()), {0}};
  node.text = text.data();
  return add(node);
}

PickleMachine::Id PickleMachine::add_own_text(Kind kind, std::string text) {
  charge(sizeof text + kHeapOverhead + text.size());
  graph_.texts_.push_back(std::move(text));
  return add_text(kind, graph_.texts_.back());
}

PickleMachine::Id PickleMachine::add_tensor(Kind kind, StoredTensor tensor) {
  const size_t numbers = kHeapOverhead + sizeof(int64_t) * tensor.shape.size();
  charge(sizeof tensor + 2 * numbers);
  charge(tensor.part != nullptr ? sizeof *tensor.part + 2 * numbers : 0);
  Node node{kind, 0, 0, {0}};
  node.reference = graph_.tensors_.size();
  graph_.tensors_.push_back(std::move(tensor));
  return add(node);
}

PickleMachine::Id PickleMachine::add_unread(const std::string& why) {
  if (names_ != PickleNames::kAnyTorchSave) {
    refuse(Code::kUnsupported, why);
  }
  return add_own_text(Kind::kUnread, fmt::format("its pickle, byte {}: {}", operation_, why));
}

void PickleMachine::spend(size_t count) {
  copied_ += count;
  check(copied_ <= 4 * bytes_.size(), "the same values are used too often");
}

PickleMachine::Id PickleMachine::add_integer(int64_t value) {
  Node node{Kind::kInt, 0, 0, {0}};
  node.number = value;
  return add(node);
}

PickleMachine::Id PickleMachine::add_real(double value) {
  Node node{Kind::kFloat, 0, 0, {0}};
  node.real = value;
  return add(node);
}

void PickleMachine::push_text(uint64_t count) {
  const std::string_view text = take(count);
  check(is_utf8(text), "text that is not UTF-8");
  push(add_text(Kind::kText, text));
}

void PickleMachine::check_values(size_t count) const {
  const size_t floor = marks_.empty() ? 0 : marks_.back();
  check(stack_.size() - floor >= count, "an operation on {} values where there are {}", count,
        stack_.size() - floor);
}

PickleMachine::Id PickleMachine::pop() {
  check_values(1);
  const Id id = stack_.back();
  stack_.pop_back();
  return id;
}

PickleMachine::Id PickleMachine::top() const {
  check_values(1);
  return stack_.back();
}

std::vector<PickleMachine::Id> PickleMachine::pop_last(size_t count) {
  check_values(count);
  std::vector<Id> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
  stack_.resize(stack_.size() - count);
  return values;
}

std::vector<PickleMachine::Id> PickleMachine::pop_to_mark() {
  check(!marks_.empty(), "an operation on the values since a mark, without a mark");
  std::vector<Id> values = pop_last(stack_.size() - marks_.back());
  marks_.pop_back();
  return values;
}

void PickleMachine::execute(uint8_t code) {
  if (!push_plain(code) && !build_container(code) && !use_memo(code)) {
    use_name(code);
  }
}

bool PickleMachine::push_plain(uint8_t code) {
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
      push(add_integer(static_cast<int32_t>(take_unsigned(4))));
      return true;
    case 'K':  // BININT1
      push(add_integer(take_byte()));
      return true;
    case 'M':  // BININT2
      push(add_integer(static_cast<int64_t>(take_unsigned(2))));
      return true;
    case 0x8a:  // LONG1
      push(add_long());
      return true;
    case 'G':  // BINFLOAT
      push(add_real(take_double()));
      return true;
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

bool PickleMachine::build_container(uint8_t code) {
  switch (code) {
    case '(':
      check(marks_.size() <= kMaxPickleDepth, "values nested more than {} deep", kMaxPickleDepth);
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

bool PickleMachine::use_memo(uint8_t code) {
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

void PickleMachine::use_name(uint8_t code) {
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
    case 0x92:  // NEWOBJ_EX
      make_object_with_keywords();
      return;
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

void PickleMachine::extend(Kind expected, const std::vector<Id>& values) {
  const Id target = top();
  if (kind(target) == Kind::kUnread) {
    return;
  }
  check(kind(target) == expected, "items are put into {}", graph_.kind_name(target));
  check(expected != Kind::kDict || values.size() % 2 == 0, "a key without a value");
  put_into(target, values);
}

// Numbers are given in order by whoever writes pickles, with few gaps.
void PickleMachine::memoize(uint64_t number) {
  check(number < bytes_.size(), "a memo number of {}", number);
  if (number >= memo_.size()) {
    memo_.resize(static_cast<size_t>(number) + 1, kNoNode);
  }
  memo_[static_cast<size_t>(number)] = top();
}

void PickleMachine::recall(uint64_t number) {
  check(number < memo_.size() && memo_[static_cast<size_t>(number)] != kNoNode,
        "memo number {} was never set", number);
  push(memo_[static_cast<size_t>(number)]);
}

}  // namespace fsdp2::ckpt
