#include "core/ckpt/state/state_numbers.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/text.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kMaxDigits = 9;

}  // namespace

StateNumbers::StateNumbers(const StateSource& source, const std::string& optimizer_prefix)
    : source_(source) {
  read_groups(optimizer_prefix + "param_groups.");
  read_shapes(optimizer_prefix + "state.");
}

void StateNumbers::read_groups(const std::string& start) {
  while (true) {
    const StateEntry* entry = source_.find(fmt::format("{}{}.params", start, groups_.size()));
    if (entry == nullptr || entry->dtype) {
      return;
    }
    const PythonValue params = source_.read_object(*entry);
    std::vector<int64_t> numbers;
    if (const auto* list = params.as<PythonList>()) {
      for (const PythonValue& item : list->items) {
        const auto* number = item.as<int64_t>();
        FSDP2_CHECK(number != nullptr, Code::kCorruptData, "{}: {}: expected a list of numbers",
                    source_.path(), entry->name);
        numbers.push_back(*number);
      }
    }
    groups_.push_back(std::move(numbers));
  }
}

// Counters have no dims, or one of one element.
void StateNumbers::read_shapes(const std::string& start) {
  for (const StateEntry& entry : source_.entries()) {
    const size_t slot = entry.name.rfind('.');
    if (!entry.dtype || entry.shape.empty() || !starts_with(entry.name, start) ||
        slot <= start.size() || entry.name.substr(slot) == ".step") {
      continue;
    }
    const std::string number = entry.name.substr(start.size(), slot - start.size());
    if (number.size() <= kMaxDigits &&
        number.find_first_not_of("0123456789") == std::string::npos) {
      shapes_.emplace(std::stoll(number), entry.shape);
    }
  }
}

size_t StateNumbers::count() const {
  size_t count = 0;
  for (const std::vector<int64_t>& numbers : groups_) {
    count += numbers.size();
  }
  return count;
}

std::vector<StateNumbers::Place> StateNumbers::places(
    const std::vector<const StateEntry*>& parameters) const {
  FSDP2_CHECK(count() == 0 || count() == parameters.size(), Code::kCorruptData,
              "{}: has optimizer state of {} parameters by number, the model has {}",
              source_.path(), count(), parameters.size());
  std::vector<Place> places;
  if (groups_.size() <= 1) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      places.push_back({static_cast<int64_t>(i), 0});
    }
    return places;
  }
  const std::map<Shape, size_t> by_shape = groups_by_shape();
  std::vector<size_t> taken(groups_.size(), 0);
  for (const StateEntry* parameter : parameters) {
    if (parameter == nullptr) {
      fail_to_tell();
    }
    const auto found = by_shape.find(parameter->shape);
    if (found == by_shape.end()) {
      fail_to_tell();
    }
    const size_t group = found->second;
    const size_t place = taken[group]++;
    if (place >= groups_[group].size() || shapes_.at(groups_[group][place]) != parameter->shape) {
      fail_to_tell();
    }
    places.push_back({groups_[group][place], group});
  }
  return places;
}

std::map<StateNumbers::Shape, size_t> StateNumbers::groups_by_shape() const {
  std::map<Shape, size_t> groups;
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (const int64_t number : groups_[group]) {
      // A parameter that has had no gradient has no state, and might be of any shape.
      const auto shape = shapes_.find(number);
      if (shape == shapes_.end() || groups.emplace(shape->second, group).first->second != group) {
        fail_to_tell();
      }
    }
  }
  return groups;
}

void StateNumbers::fail_to_tell() const {
  fail(Code::kUnsupported,
       "{}: has optimizer state by number in {} parameter groups, of which neither numbers nor "
       "shapes tell whose it is: save it by name (get_state_dict)",
       source_.path(), groups_.size());
}

}  // namespace fsdp2::ckpt
