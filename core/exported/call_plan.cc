#include "core/exported/call_plan.h"

#include <unordered_map>
#include <utility>

namespace fsdp2::exported {

namespace {

// What all plans are made of.
struct Parts {
  const std::vector<ModuleCall>& calls;
  const std::vector<Operation>& operations;
  const std::vector<bool> is_bound;  // by value
  const std::vector<int32_t> call_of_node;
  const std::vector<const Fusion*> fusion_of_node;  // null: none
};

class CallPlanner {
 public:
  explicit CallPlanner(const Parts& parts) : parts_(parts) {}

  CallPlan plan(const ModuleCall& call) {
    for (const ValueId value : call.inputs) {
      plan_.inputs.push_back(place_of(value));
    }
    for (const CallItem& item : call.items) {
      const Fusion* fusion = fusion_of(item);
      if (fusion == nullptr) {
        plan_.steps.push_back(item.is_call ? call_step(item.index) : operation_step(item.index));
      } else if (!item.is_call && item.index == fusion->nodes.back()) {
        plan_.steps.push_back(fusion_step(*fusion));
      }  // else a part of what its last node's step does
    }
    for (const ValueId value : call.outputs) {
      plan_.outputs.push_back(read(value));
    }
    plan_.frame_size = places_.size();
    mark_last_reads();
    return std::move(plan_);
  }

 private:
  int32_t place_of(ValueId value) {
    return places_.emplace(value, static_cast<int32_t>(places_.size())).first->second;
  }

  ReadPlace read(ValueId value) {
    const bool is_bound = parts_.is_bound[static_cast<size_t>(value)];
    return {is_bound ? value : place_of(value), is_bound, false};
  }

  Step operation_step(int32_t index) {
    const Operation& operation = parts_.operations[static_cast<size_t>(index)];
    Step step;
    step.operation = &operation;
    for (const OperationInput& input : operation.inputs) {
      for (const ValueId value : input.argument.values) {
        if (value != kNoValue) {
          step.reads.push_back(read(value));
        }
      }
    }
    for (const Output& output : operation.node->outputs) {
      for (const ValueId value : output.values) {
        step.writes.push_back(place_of(value));
      }
    }
    return step;
  }

  Step call_step(int32_t index) {
    const ModuleCall& call = parts_.calls[static_cast<size_t>(index)];
    Step step;
    step.call = index;
    for (const ValueId value : call.inputs) {
      step.reads.push_back(read(value));
    }
    for (const ValueId value : call.outputs) {
      step.writes.push_back(place_of(value));
    }
    return step;
  }

  // The fusion that the item is a part of in the call that it is an item of; null: none.
  const Fusion* fusion_of(const CallItem& item) const {
    const CallItem& node =
        item.is_call ? parts_.calls[static_cast<size_t>(item.index)].items.front() : item;
    const Fusion* fusion =
        node.is_call ? nullptr : parts_.fusion_of_node[static_cast<size_t>(node.index)];
    const int32_t own = item.is_call ? parts_.calls[static_cast<size_t>(item.index)].parent
                                     : parts_.call_of_node[static_cast<size_t>(item.index)];
    return fusion != nullptr && call_of(*fusion) == own ? fusion : nullptr;
  }

  int32_t call_of(const Fusion& fusion) const {
    return parts_.call_of_node[static_cast<size_t>(fusion.nodes.back())];
  }

  Step fusion_step(const Fusion& fusion) {
    Step step;
    step.fusion = &fusion;
    for (const ValueId value : fusion.inputs) {
      step.reads.push_back(read(value));
    }
    const int32_t own = call_of(fusion);
    int32_t before = own;
    for (const int32_t node : fusion.nodes) {
      const int32_t call = parts_.call_of_node[static_cast<size_t>(node)];
      if (call == own) {
        step.plain.push_back(operation_step(node));
      } else if (call != before) {
        step.plain.push_back(call_step(call));
      }
      before = call;
    }
    step.writes = step.plain.back().writes;
    return step;
  }

  static void mark(std::vector<ReadPlace>& reads, std::vector<bool>& is_needed) {
    for (size_t i = reads.size(); i-- > 0;) {
      if (!reads[i].is_bound) {
        const auto place = static_cast<size_t>(reads[i].index);
        reads[i].is_last = !is_needed[place];
        is_needed[place] = true;
      }
    }
  }

  static void mark(std::vector<Step>& steps, std::vector<bool>& is_needed) {
    for (size_t i = steps.size(); i-- > 0;) {
      for (int32_t& place : steps[i].writes) {
        place = is_needed[static_cast<size_t>(place)] ? place : -1;
      }
      mark(steps[i].reads, is_needed);
      mark(steps[i].plain, is_needed);  // which lets go of none of these
    }
  }

  void mark_last_reads() {
    std::vector<bool> is_needed(plan_.frame_size, false);
    mark(plan_.outputs, is_needed);
    mark(plan_.steps, is_needed);
  }

  const Parts& parts_;
  CallPlan plan_;
  std::unordered_map<ValueId, int32_t> places_;
};

}  // namespace

std::vector<CallPlan> plan_calls(const Program& program, const std::vector<ModuleCall>& calls,
                                 const std::vector<Operation>& operations,
                                 const std::vector<Fusion>& fusions) {
  std::vector<const Fusion*> fusion_of_node(operations.size(), nullptr);
  for (const Fusion& fusion : fusions) {
    for (const int32_t node : fusion.nodes) {
      fusion_of_node[static_cast<size_t>(node)] = &fusion;
    }
  }
  const Parts parts = {calls, operations, bound_values(program), calls_of_nodes(program, calls),
                       std::move(fusion_of_node)};
  std::vector<CallPlan> plans;
  plans.reserve(calls.size());
  for (const ModuleCall& call : calls) {
    plans.push_back(CallPlanner(parts).plan(call));
  }
  return plans;
}

}  // namespace fsdp2::exported
