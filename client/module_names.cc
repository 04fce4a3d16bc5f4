#include "client/module_names.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/config/checks/require.h"
#include "core/config/module_pattern.h"
#include "core/config/value.h"

namespace fsdp2::client {

namespace {

bool is_pattern(const std::string& name) { return name.find_first_of("{*?") != std::string::npos; }

bool is_in(const std::set<std::string>& chosen, std::string name) {
  for (;;) {
    if (chosen.count(name) > 0) {
      return true;
    }
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) {
      return false;
    }
    name.resize(dot);
  }
}

}  // namespace

ModuleNames::ModuleNames(fsdp2_module module) {
  std::set<std::string> seen;
  size_t count = 0;
  check(fsdp2_module_get_parameter_count(module, &count));
  for (size_t i = 0; i < count; ++i) {
    const auto info =
        info_of<fsdp2_module_parameter_info>(fsdp2_module_get_parameter_info, module, i);
    has_ties_ = has_ties_ || info.n_names > 1;
    for (int32_t k = 0; k < info.n_names; ++k) {
      const std::string name =
          text_of(fsdp2_module_get_parameter_name, module, i, static_cast<size_t>(k));
      parameters_.push_back(name);
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        if (seen.insert(name.substr(0, dot)).second) {
          modules_.push_back(name.substr(0, dot));
        }
      }
    }
  }
}

config::Sharding ModuleNames::expand(config::Sharding sharding) const {
  sharding.wrap_names =
      config::with_commas(modules_in("--wrap-names", config::parts_of(sharding.wrap_names)));
  return sharding;
}

std::vector<std::string> ModuleNames::modules_in(const std::string& flag,
                                                 const std::vector<std::string>& patterns) const {
  std::vector<std::string> names;
  for (const std::string& name : patterns) {
    const std::vector<std::string> paths =
        is_pattern(name) ? config::select({name}, modules_, flag) : std::vector<std::string>{name};
    for (const std::string& path : paths) {
      if (std::find(names.begin(), names.end(), path) == names.end()) {
        names.push_back(path);
      }
    }
  }
  return names;
}

std::vector<std::string> ModuleNames::parameters_in(
    const std::string& flag, const std::vector<std::string>& patterns) const {
  std::vector<std::string> all = modules_;
  all.insert(all.end(), parameters_.begin(), parameters_.end());
  const std::vector<std::string> chosen = config::select(patterns, all, flag);
  const std::set<std::string> set(chosen.begin(), chosen.end());
  std::vector<std::string> inside;
  std::copy_if(parameters_.begin(), parameters_.end(), std::back_inserter(inside),
               [&](const std::string& name) { return is_in(set, name); });
  return inside;
}

}  // namespace fsdp2::client
