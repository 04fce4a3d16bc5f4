// The order of a step by itself, whose events tell in words what they bring about.
#pragma once

#include <string>
#include <vector>

#include "core/fsdp/step_order.h"

namespace fsdp2::fsdp {

inline std::string action_verb(ActionKind kind) {
  static const char* const kVerbs[] = {"gather", "wait",   "free",       "slice",
                                       "reduce", "finish", "accumulate", "leave"};
  return kVerbs[static_cast<int>(kind)];
}

inline constexpr ExpectedGradients kAllGrads = ExpectedGradients::kAll;
inline constexpr ExpectedGradients kSomeGrads = ExpectedGradients::kSome;
inline constexpr ExpectedGradients kNoGrads = ExpectedGradients::kNone;

// A tree of units by their names, whose events tell what they bring about: "gather a, wait a".
class Steps {
 public:
  std::vector<GroupSettings> settings;
  StepOrder order;

  explicit Steps(const std::vector<std::string>& names, const StepOrder::Options& options = {},
                 ReshardAfterForward reshard = ReshardAfterForward::kAuto)
      : settings(names.size()),
        order(units_of(names, settings, reshard), options),
        names_(names),
        places_(names.size()) {}

  std::string text(const StepOrder::Actions& actions) const {
    std::string text;
    for (const Action& action : actions) {
      const std::string& name = names_[action.unit];
      text += (text.empty() ? "" : ", ") + action_verb(action.kind) + " " +
              (name.empty() ? "root" : name);
    }
    return text;
  }

  void begin_forward() { order.begin_forward(); }
  std::string enter(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_forward(unit, also_gather));
  }
  std::string leave(size_t unit, bool for_backward = true) {
    const std::string left = text(order.leave_forward(unit, /*more_to_come=*/false, for_backward));
    places_[unit].push_back(order.last_place());
    return left;
  }
  std::string end_forward() { return text(order.end_forward()); }
  std::string enter_backward(size_t unit, const std::vector<size_t>& also_gather = {}) {
    return text(order.enter_backward(unit, places_[unit].back(), also_gather));
  }
  // Enters the backward of the unit's forward before the last.
  std::string enter_earlier_backward(size_t unit) {
    places_[unit].pop_back();
    return enter_backward(unit);
  }
  std::string gradients_final(size_t unit) { return text(order.gradients_final(unit)); }
  std::string end_backward(bool last = true) {
    return text(order.end_backward(std::vector<bool>(names_.size()), last));
  }
  std::string finalize_backward() { return text(order.finalize_backward()); }
  std::string finish_step() { return text(order.finish_step()); }

  // A forward through the root, unit 0, that uses the others one after the other.
  void forward(const std::vector<size_t>& used) {
    begin_forward();
    enter(0);
    for (const size_t unit : used) {
      enter(unit);
      leave(unit);
    }
    leave(0);
    end_forward();
  }

 private:
  static std::vector<StepOrder::Unit> units_of(const std::vector<std::string>& names,
                                               const std::vector<GroupSettings>& settings,
                                               ReshardAfterForward reshard) {
    std::vector<StepOrder::Unit> units;
    for (size_t i = 0; i < names.size(); ++i) {
      units.push_back({names[i], true, reshard, &settings[i], GroupState::kSharded, true});
    }
    return units;
  }

  std::vector<std::string> names_;
  std::vector<std::vector<size_t>> places_;  // of each unit's forwards
};

}  // namespace fsdp2::fsdp
