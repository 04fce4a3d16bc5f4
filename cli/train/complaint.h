// How the command tells what is wrong.
#pragma once

#include <string>

namespace fsdp2::cli {

// Prints "fsdp2 train: rank 1: <message>", without the rank if `rank` is empty.
void complain(const std::string& rank, const std::string& message);

}  // namespace fsdp2::cli
