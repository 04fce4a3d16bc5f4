#include "core/train/state/hyper_parameters_load.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/text.h"
#include "core/train/state/saved_numbers.h"

namespace fsdp2::train {

namespace {

using ckpt::PythonValue;
using ckpt::StateEntry;
using ckpt::StateSource;

constexpr char kParams[] = "params";

const std::vector<PythonValue>* items_of(const PythonValue& value) {
  if (const auto* tuple = value.as<ckpt::PythonTuple>()) {
    return &tuple->items;
  }
  const auto* list = value.as<ckpt::PythonList>();
  return list != nullptr ? &list->items : nullptr;
}

// False for what is no value of a hyper-parameter.
bool convert(const PythonValue& value, HyperParameter::Value* out) {
  if (value.is_none()) {
    out->emplace<std::monostate>();
    return true;
  }
  if (const bool* flag = value.as<bool>()) {
    out->emplace<bool>(*flag);
    return true;
  }
  if (const auto number = number_of(value)) {
    out->emplace<double>(*number);
    return true;
  }
  const std::vector<PythonValue>* items = items_of(value);
  if (items == nullptr || items->size() != 2) {
    return false;
  }
  const auto first = number_of((*items)[0]);
  const auto second = number_of((*items)[1]);
  if (first && second) {
    out->emplace<std::pair<double, double>>(*first, *second);
  }
  return first && second;
}

bool read_value(const StateSource& source, const StateEntry& entry, HyperParameter::Value* out) {
  if (!entry.dtype) {
    return convert(source.read_object(entry), out);
  }
  const auto number = read_number(source, entry);
  if (number) {
    out->emplace<double>(*number);
  }
  return number.has_value();
}

std::string text_of(const HyperParameter::Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) {
    return fmt::to_string(*flag);
  }
  if (const double* number = std::get_if<double>(&value)) {
    return fmt::to_string(*number);
  }
  const auto* pair = std::get_if<std::pair<double, double>>(&value);
  return pair != nullptr ? fmt::format("({}, {})", pair->first, pair->second) : "None";
}

class HyperParameterLoader {
 public:
  HyperParameterLoader(const StateSource& source, const ckpt::StateNames& names,
                       const std::set<std::string>& frozen, const Optimizer& optimizer)
      : source_(source),
        prefix_(names.optimizer_prefix() + "param_groups."),
        optimizer_(optimizer) {
    for (size_t i = 0; i < optimizer.params().size(); ++i) {
      for (const std::string& name : optimizer.params()[i]->names()) {
        if (frozen.count(name) == 0) {
          group_of_.emplace(names.owner_prefix() + name, optimizer.group_of(i));
        }
      }
    }
    saved_.resize(optimizer.group_count());
    if (names.is_numbered()) {
      find_numbered_groups(names);
    } else {
      find_saved_groups();
    }
  }

  // The name of the saved group that a group takes its hyper-parameters from; empty if none was
  // saved.
  std::string saved_group(size_t group) const {
    return saved_[group].empty() ? "" : without_dot(saved_[group].front());
  }

  // kInvalidArgument if the group has parameters of saved ones that differ.
  std::vector<HyperParameter> read(size_t group) const {
    std::vector<HyperParameter> values;
    if (saved_[group].empty()) {
      return values;
    }
    check_alike(group);
    for (const std::string& name : names_in(group)) {
      if (auto value = find(saved_[group].front(), name)) {
        values.push_back({name, std::move(*value)});
      }
    }
    return values;
  }

 private:
  static std::string without_dot(const std::string& start) {
    return start.substr(0, start.size() - 1);
  }

  // What the group knows. Others have added more, maybe of a kind that is not read.
  std::vector<std::string> names_in(size_t group) const {
    std::vector<std::string> names{"initial_lr"};
    for (const HyperParameter& hyper : optimizer_.hyper_parameters(group)) {
      names.push_back(hyper.name);
    }
    return names;
  }

  std::optional<HyperParameter::Value> find(const std::string& start,
                                            const std::string& name) const {
    const StateEntry* entry = source_.find(start + name);
    HyperParameter::Value value;
    return entry != nullptr && read_value(source_, *entry, &value) ? std::optional(value)
                                                                   : std::nullopt;
  }

  void check_alike(size_t group) const {
    const std::vector<std::string>& starts = saved_[group];
    if (starts.size() == 1) {
      return;
    }
    for (const std::string& name : names_in(group)) {
      const auto first = find(starts.front(), name);
      for (size_t other = 1; first && other < starts.size(); ++other) {
        const auto value = find(starts[other], name);
        FSDP2_CHECK(!value || *value == *first, Code::kInvalidArgument,
                    "{} is {} here and {} in {}, but the run has parameters of both in its group "
                    "{}: expected groups like the checkpoint's",
                    name, text_of(*first), text_of(*value), without_dot(starts[other]), group);
      }
    }
  }

  void add_saved(size_t group, const std::string& start) {
    if (saved_[group].empty() || saved_[group].back() != start) {
      saved_[group].push_back(start);
    }
  }

  void find_numbered_groups(const ckpt::StateNames& names) {
    std::set<std::pair<size_t, size_t>> found;  // the run's group, the saved one
    for (size_t i = 0; i < optimizer_.params().size(); ++i) {
      if (const auto saved = names.group_by_number(optimizer_.params()[i]->name())) {
        found.emplace(optimizer_.group_of(i), *saved);
      }
    }
    for (const auto& [group, saved] : found) {
      add_saved(group, fmt::format("{}{}.", prefix_, saved));
    }
  }

  void find_saved_groups() {
    for (const auto& [name, group] : group_of_) {
      if (source_.find(prefix_ + name + ".lr") != nullptr) {
        add_saved(group, prefix_ + name + ".");
      }
    }
    for (int64_t number = 0;; ++number) {
      const std::string start = fmt::format("{}{}.", prefix_, number);
      const StateEntry* params = source_.find(start + kParams);
      if (params == nullptr || params->dtype) {
        // One that lists no names is of all parameters.
        if (number == 0 && source_.find(start + "lr") != nullptr) {
          saved_.assign(saved_.size(), {start});
        }
        return;
      }
      take_names(source_.read_object(*params), start);
    }
  }

  void take_names(const PythonValue& params, const std::string& start) {
    const auto* list = params.as<ckpt::PythonList>();
    for (size_t i = 0; list != nullptr && i < list->items.size(); ++i) {
      const auto* name = list->items[i].as<std::string>();
      const auto found = name != nullptr ? group_of_.find(*name) : group_of_.end();
      if (found != group_of_.end()) {
        add_saved(found->second, start);
      }
    }
  }

  const StateSource& source_;
  const std::string prefix_;
  const Optimizer& optimizer_;
  std::map<std::string, size_t> group_of_;  // by each name of a parameter, as the optimizer has it
  // By group: what the names of the hyper-parameters begin with, of each saved group that has one
  // of its parameters.
  std::vector<std::vector<std::string>> saved_;
};

// The rate itself is a schedule's; the ratio to group 0's is the group's own.
void tell_changes(const std::string& path, size_t group, const Optimizer::Settings& before,
                  const Optimizer::Settings& after) {
  std::string changes;
  const auto add = [&](const std::string& name, const HyperParameter::Value& now,
                       const HyperParameter::Value& was) {
    changes += fmt::format("{}{} {}, not {}", changes.empty() ? "" : "; ", name, text_of(now),
                           text_of(was));
  };
  const std::vector<HyperParameter>& was = before.groups[group];
  const std::vector<HyperParameter>& now = after.groups[group];
  for (size_t i = 0; i < was.size() && i < now.size(); ++i) {
    if (was[i].name != "lr" && was[i].value != now[i].value) {
      add(was[i].name, now[i].value, was[i].value);
    }
  }
  const double rounding = 1e-9 * before.lr_ratios[group];  // of a ratio of two rates
  if (std::abs(after.lr_ratios[group] - before.lr_ratios[group]) > rounding) {
    add("lr as a multiple of group 0's", after.lr_ratios[group], before.lr_ratios[group]);
  }
  if (!changes.empty()) {
    log(LogLevel::kWarning, "checkpoint",
        "{}: group {} of the optimizer takes over other values than the run was given: {}", path,
        group, changes);
  }
}

const HyperParameter* find_rate(const std::vector<HyperParameter>& values) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [](const HyperParameter& value) { return value.name == "lr"; });
  return found == values.end() ? nullptr : &*found;
}

void remove_rates(std::vector<HyperParameter>* values) {
  const auto is_rate = [](const HyperParameter& value) {
    return value.name == "lr" || value.name == "initial_lr";
  };
  values->erase(std::remove_if(values->begin(), values->end(), is_rate), values->end());
}

}  // namespace

void load_hyper_parameters(const StateSource& source, const ckpt::StateNames& names,
                           const std::set<std::string>& frozen, bool partial, Optimizer* optimizer,
                           std::vector<std::string>* refused) {
  const HyperParameterLoader loader(source, names, frozen, *optimizer);
  const bool tells = optimizer->root().mesh().team().rank() == 0;
  // The other groups' rates are kept as ratios to group 0's: without it, the run's ratios stay.
  bool has_rate_of_first = false;
  const Optimizer::Settings before = optimizer->settings();
  for (size_t group = 0; group < optimizer->group_count(); ++group) {
    try {
      std::vector<HyperParameter> saved = loader.read(group);
      if (group == 0) {
        has_rate_of_first = find_rate(saved) != nullptr;
      } else if (!has_rate_of_first) {
        remove_rates(&saved);
      }
      optimizer->set_hyper_parameters(group, saved);
      if (tells) {
        tell_changes(source.path(), group, before, optimizer->settings());
      }
    } catch (const Error& error) {
      const bool is_other_kind =
          error.code() == Code::kUnsupported || error.code() == Code::kInvalidArgument;
      if (!is_other_kind) {
        throw;
      }
      const std::string saved = loader.saved_group(group);
      FSDP2_CHECK(partial, error.code(), "{}: {}: {} (a partial load keeps the run's)",
                  source.path(), saved, error.message());
      refused->push_back(saved);
    }
  }
}

}  // namespace fsdp2::train
