#include "core/exported/writes.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

// Whether a result, or an element of the list that it is, may be a view of an argument or the
// argument itself.
bool shares_memory(const c10::AliasInfo& result, const c10::AliasInfo& formal) {
  const auto& sets = result.beforeSets();
  const auto& elements = result.containedTypes();
  return std::any_of(sets.begin(), sets.end(),
                     [&](const auto& set) { return formal.beforeSets().count(set) > 0; }) ||
         std::any_of(elements.begin(), elements.end(),
                     [&](const c10::AliasInfo& element) { return shares_memory(element, formal); });
}

class WriteFinder {
 public:
  WriteFinder(const Program& program, const std::vector<Operation>& operations)
      : operations_(operations), owner_(program.values.size()) {
    std::iota(owner_.begin(), owner_.end(), 0);
  }

  std::vector<Write> find() {
    visit_all();
    return std::move(writes_);
  }

  std::vector<bool> find_written() {
    visit_all();
    std::vector<bool> is_owner_written(owner_.size(), false);
    for (const Write& write : writes_) {
      is_owner_written[static_cast<size_t>(write.tensor)] = true;
    }
    std::vector<bool> is_written;
    for (const ValueId owner : owner_) {
      is_written.push_back(is_owner_written[static_cast<size_t>(owner)]);
    }
    return is_written;
  }

 private:
  void visit_all() {
    for (const Operation& operation : operations_) {
      if (operation.op) {
        visit(operation);
      }
    }
  }

  void visit(const Operation& operation) {
    const c10::FunctionSchema& schema = operation.op->schema();
    for (size_t i = 0; i < operation.inputs.size(); ++i) {
      const c10::Argument& formal = schema.arguments()[i];
      for (const ValueId value : operation.inputs[i].argument.values) {
        if (value == kNoValue || formal.alias_info() == nullptr) {
          continue;
        }
        const ValueId owner = owner_[static_cast<size_t>(value)];
        if (formal.alias_info()->isWrite()) {
          writes_.push_back({&operation, owner});
        }
        pass_on(operation, *formal.alias_info(), owner);
      }
    }
  }

  void pass_on(const Operation& operation, const c10::AliasInfo& formal, ValueId owner) {
    const auto& returns = operation.op->schema().returns();
    for (size_t i = 0; i < operation.node->outputs.size(); ++i) {
      const c10::AliasInfo* result = returns[i].alias_info();
      if (result != nullptr && shares_memory(*result, formal)) {
        for (const ValueId result : operation.node->outputs[i].values) {
          owner_[static_cast<size_t>(result)] = owner;
        }
      }
    }
  }

  const std::vector<Operation>& operations_;
  std::vector<ValueId> owner_;  // by value
  std::vector<Write> writes_;
};

const BoundTensor* find_bound(const std::vector<BoundTensor>& tensors, ValueId value) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const BoundTensor& tensor) { return tensor.value == value; });
  return found == tensors.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Write> find_writes(const Program& program, const std::vector<Operation>& operations) {
  return WriteFinder(program, operations).find();
}

std::vector<bool> written_values(const Program& program, const std::vector<Operation>& operations) {
  return WriteFinder(program, operations).find_written();
}

void check_writes(const Program& program, const std::vector<Write>& writes) {
  for (const Write& write : writes) {
    const BoundTensor* parameter = find_bound(program.parameters, write.tensor);
    FSDP2_CHECK(parameter == nullptr, Code::kUnsupported,
                "{}: changes the parameter {} in place, which only an optimizer may",
                title_of(program, *write.operation->node), ckpt::printable_name(parameter->name));
  }
}

std::vector<const Write*> find_outside_writes(const Program& program,
                                              const std::vector<ModuleCall>& calls,
                                              const std::vector<Write>& writes) {
  const std::vector<int32_t> call_of_node = calls_of_nodes(program, calls);
  const std::vector<int32_t> maker = calls_of_values(program, call_of_node);
  const auto is_inside = [&](int32_t call, int32_t outer) {
    while (call >= 0 && call != outer) {
      call = calls[static_cast<size_t>(call)].parent;
    }
    return call == outer;
  };
  std::vector<const Write*> found(calls.size(), nullptr);
  for (const Write& write : writes) {
    int32_t call = call_of_node[static_cast<size_t>(write.operation->node - program.nodes.data())];
    for (; call >= 0 && !is_inside(maker[static_cast<size_t>(write.tensor)], call);
         call = calls[static_cast<size_t>(call)].parent) {
      const Write*& first = found[static_cast<size_t>(call)];
      first = first == nullptr ? &write : first;
    }
  }
  return found;
}

}  // namespace fsdp2::exported
