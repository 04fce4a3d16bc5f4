// The options that every way to make a module takes.
#pragma once

#include "include/fsdp2/module.h"

namespace fsdp2::capi {

inline constexpr fsdp2_module_options kModuleDefaults = FSDP2_MODULE_OPTIONS_INIT;

// The caller's options, each value checked by itself.
fsdp2_module_options read_module_options(const fsdp2_module_options* given);

// As read_module_options, for a module that is no exported program: what only such a one can have
// is refused.
fsdp2_module_options read_options_without_program(const fsdp2_module_options* given);

}  // namespace fsdp2::capi
