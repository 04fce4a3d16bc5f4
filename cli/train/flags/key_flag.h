// A key of a training run as a flag of a command.
#pragma once

#include <CLI/CLI.hpp>

#include "core/config/key_table.h"

namespace fsdp2::cli {

// Binds the flag to the key's value, whose present one is shown as the default.
void add_flag(CLI::App* app, const config::Key& key);

}  // namespace fsdp2::cli
