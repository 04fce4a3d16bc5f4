// Modules and units by the dotted paths that callers name them by. `argument` is what the caller
// calls the path, for messages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::train {

// The module at a path below `root`; "" is root itself. Errors: kNotFound, listing what is where
// the path ends.
std::shared_ptr<nn::Module> find_module(const std::shared_ptr<nn::Module>& root,
                                        const std::string& path, const char* argument);

// Several modules as one list: without those that are inside another one or named twice. The names
// are their paths with a dot at the end, as fsdp::UnitRequest has them.
struct NamedModules {
  std::vector<std::string> names;
  std::vector<std::shared_ptr<nn::Module>> modules;
};
NamedModules find_outermost_modules(const std::shared_ptr<nn::Module>& root,
                                    const std::vector<std::string>& paths, const char* argument);

// The unit of the module at a path. Errors: find_module's, kInvalidArgument for a module that is no
// unit. REQUIRES: root is a unit.
std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root,
                                      const std::string& path, const char* argument);

// "unit 'model.layers.0'", "the root unit".
std::string unit_title(const fsdp::Unit& unit);

}  // namespace fsdp2::train
