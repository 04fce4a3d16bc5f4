// Modules and units by the dotted paths that callers name them by.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::capi {

// The module at a dotted path below `root`; "" is root itself. Errors: kNotFound, listing what is
// where the path ends.
std::shared_ptr<nn::Module> find_module(const std::shared_ptr<nn::Module>& root,
                                        const std::string& path, const char* argument);

// The unit that a caller names (null: the root). Errors: find_module's, kInvalidArgument for a
// module that is no unit.
std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root, const char* path,
                                      const char* argument);
std::vector<std::shared_ptr<fsdp::Unit>> find_units(const std::shared_ptr<nn::Module>& root,
                                                    const char* const* paths, size_t count,
                                                    const char* argument);

// "unit 'model.layers.0'", "the root unit".
std::string unit_title(const fsdp::Unit& unit);

}  // namespace fsdp2::capi
