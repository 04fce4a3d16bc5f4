#include "core/exported/call_plan.h"

#include <unordered_map>
#include <utility>

namespace fsdp2::exported {

namespace {

class CallPlanner {
 public:
  CallPlanner(const std::vector<bool>& is_bound, const std::vector<ModuleCall>& calls,
              const std::vector<Operation>& operations)
      : is_bound_(is_bound), calls_(calls), operations_(operations) {}

  CallPlan plan(const ModuleCall& call) {
    for (const ValueId value : call.inputs) {
      plan_.inputs.push_back(place_of(value));
    }
    for (const CallItem& item : call.items) {
      plan_.steps.push_back(item.is_call ? call_step(item.index) : operation_step(item.index));
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
    const bool is_bound = is_bound_[static_cast<size_t>(value)];
    return {is_bound ? value : place_of(value), is_bound, false};
  }

  Step operation_step(int32_t index) {
    const Operation& operation = operations_[static_cast<size_t>(index)];
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
    const ModuleCall& call = calls_[static_cast<size_t>(index)];
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

  void mark_last_reads() {
    std::vector<bool> is_needed(plan_.frame_size, false);
    const auto mark = [&](std::vector<ReadPlace>& reads) {
      for (size_t i = reads.size(); i-- > 0;) {
        if (!reads[i].is_bound) {
          const auto place = static_cast<size_t>(reads[i].index);
          reads[i].is_last = !is_needed[place];
          is_needed[place] = true;
        }
      }
    };
    mark(plan_.outputs);
    for (size_t i = plan_.steps.size(); i-- > 0;) {
      for (int32_t& place : plan_.steps[i].writes) {
        place = is_needed[static_cast<size_t>(place)] ? place : -1;
      }
      mark(plan_.steps[i].reads);
    }
  }

  const std::vector<bool>& is_bound_;
  const std::vector<ModuleCall>& calls_;
  const std::vector<Operation>& operations_;
  CallPlan plan_;
  std::unordered_map<ValueId, int32_t> places_;
};

}  // namespace

std::vector<CallPlan> plan_calls(const Program& program, const std::vector<ModuleCall>& calls,
                                 const std::vector<Operation>& operations) {
  const std::vector<bool> is_bound = bound_values(program);
  std::vector<CallPlan> plans;
  plans.reserve(calls.size());
  for (const ModuleCall& call : calls) {
    plans.push_back(CallPlanner(is_bound, calls, operations).plan(call));
  }
  return plans;
}

}  // namespace fsdp2::exported
