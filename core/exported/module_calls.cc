#include "core/exported/module_calls.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::exported {

namespace {

constexpr int32_t kRoot = 0;
constexpr size_t kMaxCalls = size_t{1} << 20;

class CallFinder {
 public:
  explicit CallFinder(const Program& program)
      : program_(program), is_bound_(bound_values(program)) {}

  std::vector<ModuleCall> find() {
    make_tree();
    const std::vector<int32_t> call_of_node = calls_of_nodes(program_, calls_);
    maker_ = calls_of_values(program_, call_of_node);
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      for (const ValueId value : values_read(program_.nodes[i])) {
        pass(value, call_of_node[i]);
      }
    }
    for (const ValueId value : program_.outputs) {
      pass(value, kRoot);
    }
    set_ends_of_root();
    return std::move(calls_);
  }

 private:
  struct Open {
    std::string key;
    int32_t call;
  };

  void make_tree() {
    calls_.emplace_back();
    std::vector<Open> open = {{"", kRoot}};
    for (size_t i = 0; i < program_.nodes.size(); ++i) {
      if (program_.nodes[i].stack >= 0) {
        enter(program_.stacks[static_cast<size_t>(program_.nodes[i].stack)], open);
      }
      calls_[static_cast<size_t>(open.back().call)].items.push_back(
          {false, static_cast<int32_t>(i)});
    }
  }

  // Ends the calls that are not in `stack`, and begins those that are not open.
  void enter(const CallStack& stack, std::vector<Open>& open) {
    size_t shared = 1;  // both begin with the root
    while (shared < open.size() && shared < stack.size() && open[shared].key == stack[shared].key) {
      ++shared;
    }
    open.resize(shared);
    FSDP2_CHECK(calls_.size() + stack.size() <= kMaxCalls, Code::kUnsupported,
                "{}: more than {} calls of modules are not accepted", program_.label, kMaxCalls);
    for (size_t level = shared; level < stack.size(); ++level) {
      const auto index = static_cast<int32_t>(calls_.size());
      ModuleCall call;
      call.path = stack[level].path;
      call.parent = open.back().call;
      call.depth = static_cast<int32_t>(level);
      calls_.push_back(std::move(call));
      calls_[static_cast<size_t>(open.back().call)].items.push_back({true, index});
      open.push_back({stack[level].key, index});
    }
  }

  // Makes a value that is used in `user` an output of each call that it leaves on the way there,
  // and an input of each that it enters.
  void pass(ValueId value, int32_t user) {
    if (is_bound_[static_cast<size_t>(value)]) {
      return;
    }
    int32_t from = std::max(maker_[static_cast<size_t>(value)], kRoot);  // which has the inputs
    while (from != user) {
      ModuleCall& maker = calls_[static_cast<size_t>(from)];
      ModuleCall& reader = calls_[static_cast<size_t>(user)];
      if (maker.depth > reader.depth) {
        add(value, from, maker.outputs, is_output_);
        from = maker.parent;
      } else {
        add(value, user, reader.inputs, is_input_);
        user = reader.parent;
      }
    }
  }

  using Seen = std::unordered_set<uint64_t>;  // of calls and values
  static void add(ValueId value, int32_t call, std::vector<ValueId>& list, Seen& seen) {
    const uint64_t key = static_cast<uint64_t>(call) << 32 | static_cast<uint32_t>(value);
    if (seen.insert(key).second) {
      list.push_back(value);
    }
  }

  void set_ends_of_root() {
    for (const UserInput& input : program_.inputs) {
      calls_.front().inputs.push_back(input.value);
    }
    calls_.front().outputs = program_.outputs;
  }

  const Program& program_;
  const std::vector<bool> is_bound_;
  std::vector<int32_t> maker_;  // by value
  std::vector<ModuleCall> calls_;
  Seen is_input_;
  Seen is_output_;
};

}  // namespace

std::vector<ModuleCall> find_module_calls(const Program& program) {
  return CallFinder(program).find();
}

std::vector<int32_t> calls_of_nodes(const Program& program, const std::vector<ModuleCall>& calls) {
  std::vector<int32_t> call_of_node(program.nodes.size(), kRoot);
  for (size_t call = 0; call < calls.size(); ++call) {
    for (const CallItem& item : calls[call].items) {
      if (!item.is_call) {
        call_of_node[static_cast<size_t>(item.index)] = static_cast<int32_t>(call);
      }
    }
  }
  return call_of_node;
}

bool may_join(const Program& program, const std::vector<ModuleCall>& calls,
              const std::vector<int32_t>& call_of_node, const std::vector<bool>& is_bound,
              const std::vector<int32_t>& nodes) {
  const auto reads_bound = [&](int32_t node) {
    const auto values = values_read(program.nodes[static_cast<size_t>(node)]);
    return std::any_of(values.begin(), values.end(),
                       [&](ValueId value) { return is_bound[static_cast<size_t>(value)]; });
  };
  const auto may_move = [&](const CallItem& item) {
    return !item.is_call && std::binary_search(nodes.begin(), nodes.end(), item.index) &&
           !reads_bound(item.index);
  };
  const int32_t own = call_of_node[static_cast<size_t>(nodes.back())];
  return std::all_of(nodes.begin(), nodes.end(), [&](int32_t node) {
    const int32_t index = call_of_node[static_cast<size_t>(node)];
    const ModuleCall& call = calls[static_cast<size_t>(index)];
    return index == own ||
           (call.parent == own && std::all_of(call.items.begin(), call.items.end(), may_move));
  });
}

std::vector<int32_t> calls_of_values(const Program& program,
                                     const std::vector<int32_t>& call_of_node) {
  std::vector<int32_t> call_of_value(program.values.size(), -1);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    for (const Output& output : program.nodes[i].outputs) {
      for (const ValueId value : output.values) {
        call_of_value[static_cast<size_t>(value)] = call_of_node[i];
      }
    }
  }
  return call_of_value;
}

std::vector<ValueId> values_read(const Node& node) {
  std::vector<ValueId> values;
  for (const NamedArgument& input : node.inputs) {
    for (const ValueId value : input.argument.values) {
      if (value != kNoValue) {
        values.push_back(value);
      }
    }
  }
  return values;
}

std::vector<bool> bound_values(const Program& program) {
  std::vector<bool> is_bound(program.values.size(), false);
  for (const auto* list : {&program.parameters, &program.buffers, &program.constants}) {
    for (const BoundTensor& tensor : *list) {
      is_bound[static_cast<size_t>(tensor.value)] = true;
    }
  }
  return is_bound;
}

}  // namespace fsdp2::exported
