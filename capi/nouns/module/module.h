// Modules and when their parameters get values.
#pragma once

#include "capi/object.h"

namespace fsdp2::capi {

// The parameters of a module that nothing is sharded in.
std::vector<ModuleParameter> parameters_of(const nn::Module& module);

// Gives an unsharded module's parameters memory and values if they have none. kWrongState if only
// modules in it are sharded. REQUIRES: busy.
inline void materialize(ModuleObject& module) { module.session->materialize(); }

// kWrongState for a module that a failed call has left half-done. REQUIRES: busy.
inline void check_usable(const ModuleObject& module) { module.session->check_usable(); }

}  // namespace fsdp2::capi
