#include "capi/nouns/module_path.h"

#include <algorithm>

#include "capi/argument.h"

namespace fsdp2::capi {

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

std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root, const char* path,
                                      const char* argument) {
  const std::string name = path == nullptr ? "" : read_text(path, kMaxName, argument);
  std::shared_ptr<fsdp::Unit> unit = fsdp::find_unit(*find_module(root, name, argument));
  FSDP2_CHECK(unit != nullptr, Code::kInvalidArgument,
              "{}: expected a module that is sharded as a unit of its own, found '{}', which is "
              "not; the units are {}",
              argument, name, unit_names(*fsdp::find_unit(*root)));
  return unit;
}

std::vector<std::shared_ptr<fsdp::Unit>> find_units(const std::shared_ptr<nn::Module>& root,
                                                    const char* const* paths, size_t count,
                                                    const char* argument) {
  check_array(paths, count, argument);
  std::vector<std::shared_ptr<fsdp::Unit>> units;
  for (size_t i = 0; i < count; ++i) {
    units.push_back(find_unit(root, check_not_null(paths[i], argument), argument));
  }
  return units;
}

std::string unit_title(const fsdp::Unit& unit) {
  return unit.name().empty() ? "the root unit" : fmt::format("unit '{}'", unit.name());
}

}  // namespace fsdp2::capi
