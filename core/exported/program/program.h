// A program of torch.export as data: what is computed of what, in which order, for which module.
// Nothing in it runs; operations.h finds out what its nodes stand for.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::exported {

// Values are numbered in the order in which they are defined.
using ValueId = int32_t;
constexpr ValueId kNoValue = -1;

enum class ValueKind { kTensor, kInt, kBool, kFloat };

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kTensor;
};

struct Argument {
  enum class Kind {
    kConstant,         // `constant`: None, a number, a text, or a list of them
    kValue,            // values[0]
    kTensors,          // a list of `values`
    kOptionalTensors,  // the same, where kNoValue stands for None
    kInts,             // a list: values[i], or ints[i] where that is kNoValue
    kDevice,           // the device of the run, whichever the file names
  };

  Kind kind = Kind::kConstant;
  c10::IValue constant;
  std::vector<ValueId> values;
  std::vector<int64_t> ints;
};

struct NamedArgument {
  std::string name;
  Argument argument;
};

// One result of a node.
struct Output {
  std::vector<ValueId> values;  // none: nobody uses it
  bool is_list = false;
};

// What differs from the caller's mode while a node runs.
struct Mode {
  struct Autocast {
    bool enabled = false;
    std::optional<at::ScalarType> dtype;

    bool operator==(const Autocast& other) const {
      return enabled == other.enabled && dtype == other.dtype;
    }
  };

  std::optional<bool> grad;
  std::optional<Autocast> autocast;

  bool operator==(const Mode& other) const {
    return grad == other.grad && autocast == other.autocast;
  }
};

// The calls of modules that are open while a node runs, from the root inwards.
struct OpenCall {
  std::string key;  // of the call: differs between two calls of one module
  std::string path;
  std::string kind;  // the module's class, without its Python module
};
using CallStack = std::vector<OpenCall>;

struct Node {
  std::string name;
  std::string target;  // "torch.ops.aten.add.Tensor", "_operator.mul"
  std::vector<NamedArgument> inputs;
  std::vector<Output> outputs;
  int32_t stack = -1;  // in Program::stacks; -1: that of the node before
  int32_t mode = 0;    // in Program::modes
};

// A size of an input: a number, or a symbol that has one value in each call.
struct Size {
  int64_t fixed = 0;
  int32_t symbol = -1;  // in Program::symbols
};

struct Symbol {
  std::string name;
  std::optional<int64_t> least;
  std::optional<int64_t> most;
};

struct UserInput {
  ValueId value = kNoValue;
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<Size> sizes;
};

// A value that is there before the program runs.
struct BoundTensor {
  ValueId value = kNoValue;
  std::string name;  // of the parameter, buffer or constant
  at::ScalarType dtype = at::kFloat;
  bool is_persistent = true;  // in state dicts; some buffers and all constants are not
};

struct Program {
  std::string label;  // of the file, for messages
  std::vector<Value> values;
  std::vector<BoundTensor> parameters;  // in registration order; each name of a tie
  std::vector<BoundTensor> buffers;
  std::vector<BoundTensor> constants;
  std::vector<UserInput> inputs;
  std::vector<Symbol> symbols;
  std::vector<CallStack> stacks;
  std::vector<Mode> modes;  // [0]: the caller's
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;
  std::vector<std::string> modules;  // dotted paths in registration order, "" first
};

}  // namespace fsdp2::exported
