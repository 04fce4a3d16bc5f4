#include "core/train/module_path.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::train {

namespace {

std::string child_names(const nn::Module& module) {
  std::string names;
  for (const auto& [name, child] : module.child_modules()) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "nothing" : names;
}

std::string unit_names(fsdp::Unit& root) {
  constexpr size_t kMost = 32;
  std::string names;
  const auto units = root.units();
  for (size_t i = 0; i < std::min(units.size(), kMost); ++i) {
    names += fmt::format("{}'{}'", i == 0 ? "" : ", ", units[i]->name());
  }
  return names + (units.size() > kMost ? ", ..." : "");
}

// Without those that are inside another one, or named twice.
std::vector<std::string> outermost(const std::vector<std::string>& paths) {
  std::vector<std::string> kept;
  for (const std::string& path : paths) {
    const bool inside = std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
      return path.rfind(other + ".", 0) == 0;
    });
    if (!inside && std::find(kept.begin(), kept.end(), path) == kept.end()) {
      kept.push_back(path);
    }
  }
  return kept;
}

}  // namespace

std::shared_ptr<nn::Module> find_module(const std::shared_ptr<nn::Module>& root,
                                        const std::string& path, const char* argument) {
  std::shared_ptr<nn::Module> module = root;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    const auto children = module->child_modules();
    const auto found = std::find_if(children.begin(), children.end(),
                                    [&](const auto& child) { return child.first == name; });
    FSDP2_CHECK(found != children.end() && end + 1 != path.size(), Code::kNotFound,
                "{}: there is no module '{}' in {}; '{}' holds {}", argument, path, root->kind(),
                path.substr(0, begin == 0 ? 0 : begin - 1), child_names(*module));
    module = found->second;
    begin = end + 1;
  }
  return module;
}

NamedModules find_outermost_modules(const std::shared_ptr<nn::Module>& root,
                                    const std::vector<std::string>& paths, const char* argument) {
  NamedModules found;
  for (const std::string& path : outermost(paths)) {
    std::shared_ptr<nn::Module> module = find_module(root, path, argument);
    // One module may stand at two paths.
    if (std::find(found.modules.begin(), found.modules.end(), module) == found.modules.end()) {
      found.names.push_back(path + ".");
      found.modules.push_back(std::move(module));
    }
  }
  return found;
}

std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root,
                                      const std::string& path, const char* argument) {
  std::shared_ptr<fsdp::Unit> unit = fsdp::find_unit(*find_module(root, path, argument));
  FSDP2_CHECK(unit != nullptr, Code::kInvalidArgument,
              "{}: expected a module that is sharded as a unit of its own, found '{}', which is "
              "not; the units are {}",
              argument, path, unit_names(*fsdp::find_unit(*root)));
  return unit;
}

std::string unit_title(const fsdp::Unit& unit) {
  return unit.name().empty() ? "the root unit" : fmt::format("unit '{}'", unit.name());
}

}  // namespace fsdp2::train
