#include "core/ckpt/state/state_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kState = "state.";

bool is_number(std::string_view text) {
  constexpr size_t kMaxDigits = 9;
  return !text.empty() && text.size() <= kMaxDigits &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

// What trainers keep beside a model whose names have no prefix, by the first part of its names.
constexpr std::array<std::string_view, 17> kBesideTheModel = {
    "fsdp2",      "rng_state",   "rng",     "scheduler",   "lr_scheduler", "train_state",
    "dataloader", "data_loader", "sampler", "scaler",      "grad_scaler",  "loss_scaler",
    "step",       "epoch",       "trainer", "global_step", "iteration"};

std::string_view first_part(std::string_view name) { return name.substr(0, name.find('.')); }

// Where names may begin inside a name: at its start and behind each dot.
std::vector<size_t> name_starts(std::string_view name) {
  std::vector<size_t> starts{0};
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    starts.push_back(dot + 1);
  }
  return starts;
}

// "<prefix>state.<owner>.<slot>"
struct StateName {
  std::string prefix;
  std::string owner;
};

std::optional<StateName> split_state_name(const std::string& name,
                                          const std::unordered_map<std::string, size_t>& owners) {
  const size_t slot = name.rfind('.');
  for (const size_t start : name_starts(name)) {
    const size_t owner = start + kState.size();
    if (slot == std::string::npos || slot <= owner ||
        name.compare(start, kState.size(), kState) != 0) {
      continue;
    }
    std::string text = name.substr(owner, slot - owner);
    if (owners.count(text) != 0 || is_number(text)) {
      return StateName{name.substr(0, start), std::move(text)};
    }
  }
  return std::nullopt;
}

// The key with the largest count; `usual` if it is among several.
std::optional<std::string> most_frequent(const std::map<std::string, size_t>& counts,
                                         const std::string& usual) {
  std::optional<std::string> best;
  size_t best_count = 0;
  for (const auto& [key, count] : counts) {
    if (count > best_count || (count == best_count && key == usual)) {
      best = key;
      best_count = count;
    }
  }
  return best;
}

}  // namespace

StateNames::StateNames(const StateSource& source, std::vector<ParameterNames> parameters)
    : source_(source), parameters_(std::move(parameters)) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const std::string& name : parameters_[i].names) {
      by_name_.emplace(name, i);
    }
  }
  find_model_prefix();
  find_optimizer_prefix();
}

void StateNames::find_model_prefix() {
  std::map<std::string, size_t> counts;
  for (const StateEntry& entry : source_.entries()) {
    for (const size_t start : name_starts(entry.name)) {
      if (entry.dtype && by_name_.count(entry.name.substr(start)) != 0) {
        ++counts[entry.name.substr(0, start)];
      }
    }
  }
  model_prefix_ = most_frequent(counts, model_prefix_).value_or(model_prefix_);
}

void StateNames::find_optimizer_prefix() {
  std::map<std::string, size_t> counts;
  std::map<std::string, size_t> numbered;
  for (const StateEntry& entry : source_.entries()) {
    if (const auto found = split_state_name(entry.name, by_name_)) {
      ++(by_name_.count(found->owner) != 0 ? counts : numbered)[found->prefix];
    }
  }
  const bool by_number = counts.empty() && !numbered.empty();
  if (const auto prefix = most_frequent(by_number ? numbered : counts, optimizer_prefix_)) {
    optimizer_prefix_ = *prefix;
    has_optimizer_ = true;
  }
  if (by_number) {
    number_parameters();
  }
}

void StateNames::number_parameters() {
  const std::string groups = optimizer_prefix_ + "param_groups.";
  FSDP2_CHECK(source_.find(groups + "1.params") == nullptr, Code::kUnsupported,
              "{}: has optimizer state by number in several parameter groups, which does not tell "
              "whose it is: save it by name (get_state_dict)",
              source_.path());
  size_t count = 0;
  if (const StateEntry* entry = source_.find(groups + "0.params");
      entry != nullptr && !entry->dtype) {
    const PythonValue params = source_.read_object(*entry);
    count = params.as<PythonList>() != nullptr ? params.as<PythonList>()->items.size() : 0;
  }
  // Some trainers give the optimizer all parameters, others those that train.
  const auto all = static_cast<size_t>(
      std::count_if(parameters_.begin(), parameters_.end(),
                    [](const ParameterNames& parameter) { return !parameter.is_buffer; }));
  const bool has_all = count == 0 || count == all;
  size_t number = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].is_buffer && (has_all || parameters_[i].is_trainable)) {
      numbers_.emplace(i, number++);
    }
  }
  FSDP2_CHECK(count == 0 || number == count, Code::kCorruptData,
              "{}: has optimizer state of {} parameters by number, the model has {}",
              source_.path(), count, number);
}

const StateEntry* StateNames::parameter(size_t index) const {
  for (const std::string& name : parameters_[index].names) {
    const StateEntry* entry = source_.find(model_prefix_ + name);
    if (entry != nullptr && entry->dtype) {
      return entry;
    }
  }
  return nullptr;
}

const StateEntry* StateNames::optimizer_state(size_t index, const std::string& slot) const {
  const std::string start = optimizer_prefix_ + std::string(kState);
  if (!numbers_.empty()) {
    const auto number = numbers_.find(index);
    return number == numbers_.end()
               ? nullptr
               : source_.find(fmt::format("{}{}.{}", start, number->second, slot));
  }
  for (const std::string& name : parameters_[index].names) {
    if (const StateEntry* entry = source_.find(start + name + "." + slot)) {
      return entry;
    }
  }
  return nullptr;
}

// Unless the model itself has a module of that name.
bool StateNames::is_beside_model(const std::string& name) const {
  const std::string_view part = first_part(name);
  const bool known =
      std::find(kBesideTheModel.begin(), kBesideTheModel.end(), part) != kBesideTheModel.end();
  return known && std::none_of(by_name_.begin(), by_name_.end(), [&](const auto& parameter) {
           return first_part(parameter.first) == part;
         });
}

std::vector<std::string> StateNames::unexpected_parameters() const {
  std::vector<std::string> unexpected;
  const std::string& optimizer = optimizer_prefix_;
  for (const StateEntry& entry : source_.entries()) {
    const bool in_model = entry.dtype && starts_with(entry.name, model_prefix_);
    // With an empty prefix everything is in the model but what is known to be something else.
    const bool other =
        (has_optimizer_ && (starts_with(entry.name, optimizer + std::string(kState)) ||
                            starts_with(entry.name, optimizer + "param_groups."))) ||
        (model_prefix_.empty() && is_beside_model(entry.name));
    if (in_model && !other && by_name_.count(entry.name.substr(model_prefix_.size())) == 0) {
      unexpected.push_back(entry.name);
    }
  }
  return unexpected;
}

std::vector<std::string> StateNames::unexpected_optimizer_state() const {
  std::vector<std::string> unexpected;
  std::set<std::string> numbers;
  for (const auto& [index, number] : numbers_) {
    numbers.insert(std::to_string(number));
  }
  const std::string start = optimizer_prefix_ + std::string(kState);
  for (const StateEntry& entry : source_.entries()) {
    if (!has_optimizer_ || !starts_with(entry.name, start)) {
      continue;
    }
    const size_t slot = entry.name.rfind('.');
    const std::string owner =
        slot > start.size() ? entry.name.substr(start.size(), slot - start.size()) : "";
    if (numbers_.empty() ? by_name_.count(owner) == 0 : numbers.count(owner) == 0) {
      unexpected.push_back(entry.name);
    }
  }
  return unexpected;
}

}  // namespace fsdp2::ckpt
