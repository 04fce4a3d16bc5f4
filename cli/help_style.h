// How the help of a command looks.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace fsdp2::cli {

// Lines are as long as the terminal is wide, within 60 and 100 columns; where there is none, 100.
// usage: what follows the command's name.
std::shared_ptr<CLI::FormatterBase> help_style(const std::string& usage);

}  // namespace fsdp2::cli
