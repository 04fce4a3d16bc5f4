// Modules and units by the dotted paths that callers name them by.
#pragma once

#include <memory>
#include <vector>

#include "core/fsdp/unit.h"
#include "core/nn/module.h"
#include "core/train/module_path.h"

namespace fsdp2::capi {

using train::find_module;
using train::unit_title;

// The unit that a caller names (null: the root). Errors: train::find_unit's.
std::shared_ptr<fsdp::Unit> find_unit(const std::shared_ptr<nn::Module>& root, const char* path,
                                      const char* argument);
std::vector<std::shared_ptr<fsdp::Unit>> find_units(const std::shared_ptr<nn::Module>& root,
                                                    const char* const* paths, size_t count,
                                                    const char* argument);

}  // namespace fsdp2::capi
