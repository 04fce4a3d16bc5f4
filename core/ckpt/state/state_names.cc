#include "core/ckpt/state/state_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"

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

std::optional<StateName> split_state_name(const std::string& name, const std::string& owner_prefix,
                                          const std::unordered_map<std::string, size_t>& owners) {
  const size_t slot = name.rfind('.');
  for (const size_t start : name_starts(name)) {
    const size_t owner = start + kState.size();
    if (slot == std::string::npos || slot <= owner ||
        name.compare(start, kState.size(), kState) != 0) {
      continue;
    }
    std::string text = name.substr(owner, slot - owner);
    if (is_number(text)) {
      return StateName{name.substr(0, start), std::move(text)};
    }
    if (starts_with(text, owner_prefix) && owners.count(text.substr(owner_prefix.size())) != 0) {
      return StateName{name.substr(0, start), text.substr(owner_prefix.size())};
    }
  }
  return std::nullopt;
}

// What a prefix fits.
struct Fit {
  std::set<std::string> owners;  // parameters, by any text that tells them apart
  std::set<std::string> entries;
};
using Fits = std::map<std::string, Fit>;  // by prefix

// Those that fit most owners.
std::vector<std::string> best_of(const Fits& fits) {
  std::vector<std::string> best;
  size_t most = 1;
  for (const auto& [prefix, fit] : fits) {
    if (fit.owners.size() > most) {
      best.clear();
      most = fit.owners.size();
    }
    if (fit.owners.size() == most) {
      best.push_back(prefix);
    }
  }
  return best;
}

// A copy is not another one that was looked at from a later place in its names.
bool is_another_copy(const Fit& fit, const Fit& other) {
  return !std::includes(other.entries.begin(), other.entries.end(), fit.entries.begin(),
                        fit.entries.end());
}

// The usual prefix goes before others, whichever copy has a name more, and "" before its equals.
// Otherwise those that fit best: none, one, or several that nothing tells apart.
std::vector<std::string> choose_prefix(const Fits& fits, const std::string& usual) {
  std::vector<std::string> best = best_of(fits);
  if (best.empty()) {
    return best;
  }
  const Fit& first = fits.at(best.front());
  const auto found = fits.find(usual);
  if (found != fits.end() && (found->second.owners.size() == first.owners.size() ||
                              is_another_copy(found->second, first))) {
    return {usual};
  }
  if (best.front().empty()) {
    return {""};
  }
  return best;
}

void check_one(const std::vector<std::string>& prefixes, const std::string& usual,
               const std::string& path, const char* what) {
  FSDP2_CHECK(prefixes.size() <= 1, Code::kInvalidArgument,
              "{}: expected one {}, or one whose names begin with \"{}\", found several that fit "
              "equally well, with names that begin with \"{}\": save the one that is meant in a "
              "file of its own",
              path, what, usual, fmt::join(prefixes, "\", \""));
}

// What a rank of FSDP1 has in one tensor for all parameters of a module, unless told otherwise.
void check_is_not_flat(const StateSource& source) {
  for (const StateEntry& entry : source.entries()) {
    FSDP2_CHECK(!ends_with(entry.name, "flat_param"), Code::kUnsupported,
                "{}: {} is a flat parameter of FSDP1, which does not tell the model's own in it: "
                "save with StateDictType.SHARDED_STATE_DICT or FULL_STATE_DICT",
                source.path(), printable_name(entry.name));
  }
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
  find_owner_prefix();
  find_optimizer_prefix();
}

void StateNames::find_model_prefix() {
  Fits fits;
  for (const StateEntry& entry : source_.entries()) {
    for (const size_t start : name_starts(entry.name)) {
      const auto parameter = by_name_.find(entry.name.substr(start));
      if (entry.dtype && parameter != by_name_.end()) {
        Fit& fit = fits[entry.name.substr(0, start)];
        fit.owners.insert(std::to_string(parameter->second));
        fit.entries.insert(entry.name);
      }
    }
  }
  const std::vector<std::string> prefixes = choose_prefix(fits, model_prefix_);
  check_one(prefixes, model_prefix_, source_.path(), "model");
  if (!prefixes.empty()) {
    model_prefix_ = prefixes.front();
  } else {
    check_is_not_flat(source_);
  }
}

// "model." of "state_dict.model.", where a module around the model has given the optimizer its
// parameters.
void StateNames::find_owner_prefix() {
  for (const size_t start : name_starts(model_prefix_)) {
    const std::string prefix = model_prefix_.substr(start);
    const auto names_parameter = [&](const StateEntry& entry) {
      const auto found = split_state_name(entry.name, prefix, by_name_);
      return found && by_name_.count(found->owner) != 0;
    };
    const std::vector<StateEntry>& entries = source_.entries();
    if (std::any_of(entries.begin(), entries.end(), names_parameter)) {
      owner_prefix_ = prefix;
    }
  }
}

void StateNames::find_optimizer_prefix() {
  Fits named;
  Fits numbered;
  for (const StateEntry& entry : source_.entries()) {
    if (const auto found = split_state_name(entry.name, owner_prefix_, by_name_)) {
      Fit& fit = (by_name_.count(found->owner) != 0 ? named : numbered)[found->prefix];
      fit.owners.insert(found->owner);
      fit.entries.insert(entry.name);
    }
  }
  const bool by_number = named.empty() && !numbered.empty();
  optimizer_prefixes_ = choose_prefix(by_number ? numbered : named, optimizer_prefix_);
  if (optimizer_prefixes_.size() != 1) {
    return;
  }
  optimizer_prefix_ = optimizer_prefixes_.front();
  has_optimizer_ = true;
  if (by_number) {
    number_parameters();
  }
}

void StateNames::check_one_optimizer() const {
  check_one(optimizer_prefixes_, optimizer_prefix_, source_.path(), "optimizer");
}

void StateNames::number_parameters() {
  const StateNumbers numbers(source_, optimizer_prefix_);
  // Some trainers give the optimizer all parameters, others those that train.
  const auto all = static_cast<size_t>(
      std::count_if(parameters_.begin(), parameters_.end(),
                    [](const ParameterNames& parameter) { return !parameter.is_buffer; }));
  const bool has_all = numbers.count() == 0 || numbers.count() == all;
  std::vector<size_t> given;
  std::vector<const StateEntry*> tensors;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].is_buffer && (has_all || parameters_[i].is_trainable)) {
      given.push_back(i);
      tensors.push_back(parameter(i));
    }
  }
  const std::vector<StateNumbers::Place> places = numbers.places(tensors);
  for (size_t i = 0; i < places.size(); ++i) {
    numbers_.emplace(given[i], places[i]);
  }
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
               : source_.find(fmt::format("{}{}.{}", start, number->second.number, slot));
  }
  for (const std::string& name : parameters_[index].names) {
    if (const StateEntry* entry = source_.find(start + owner_prefix_ + name + "." + slot)) {
      return entry;
    }
  }
  return nullptr;
}

std::optional<size_t> StateNames::group_by_number(const std::string& parameter) const {
  const auto index = by_name_.find(parameter);
  const auto place = index != by_name_.end() ? numbers_.find(index->second) : numbers_.end();
  return place != numbers_.end() ? std::optional<size_t>(place->second.group) : std::nullopt;
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
  for (const auto& [index, place] : numbers_) {
    numbers.insert(std::to_string(place.number));
  }
  const std::string start = optimizer_prefix_ + std::string(kState);
  for (const StateEntry& entry : source_.entries()) {
    if (!has_optimizer_ || !starts_with(entry.name, start)) {
      continue;
    }
    const size_t slot = entry.name.rfind('.');
    const std::string owner =
        slot > start.size() ? entry.name.substr(start.size(), slot - start.size()) : "";
    const bool is_named = starts_with(owner, owner_prefix_) &&
                          by_name_.count(owner.substr(owner_prefix_.size())) != 0;
    if (numbers_.empty() ? !is_named : numbers.count(owner) == 0) {
      unexpected.push_back(entry.name);
    }
  }
  return unexpected;
}

}  // namespace fsdp2::ckpt
