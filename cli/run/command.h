// Finds the program that ranks are to run, before any rank is started.
#pragma once

#include <string>

namespace fsdp2::cli {

// The file of a command: a path as it is, or what PATH has under this name. If PATH has no "fsdp2",
// that is this very program. Empty if there is no such command.
std::string find_command(const std::string& name);

// The file that this process was started from.
std::string own_path();

}  // namespace fsdp2::cli
