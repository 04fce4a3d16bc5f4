// Keys of a training run as flags of a command.
#pragma once

#include <CLI/CLI.hpp>

#include "core/config/key_table.h"
#include "core/config/plan.h"

namespace fsdp2::cli {

// Binds the flag to the key's value, whose present one is shown as the default.
void add_flag(CLI::App* app, const config::Key& key);

// Notes in `plan` which of its values come from flags that were given.
void note_given_flags(const CLI::App& app, config::Plan* plan);

}  // namespace fsdp2::cli
