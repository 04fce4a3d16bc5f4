// Models from a config.json.
#pragma once

#include <string>

#include "client/library.h"

namespace fsdp2::client {

enum class Ties {
  kAsGiven,  // as the config.json says
  kNone      // the head has weights of its own
};

// path: of a config.json, or the name of a preset. Throws Failure, which names `flag` and `path`:
// the library sees the text alone.
void module_from_config_file(const std::string& flag, const std::string& path,
                             const fsdp2_module_options& options, Module* out,
                             Ties ties = Ties::kAsGiven);

}  // namespace fsdp2::client
