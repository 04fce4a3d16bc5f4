// Writes that leave a file whole, whenever the run ends.
#pragma once

#include <string>
#include <string_view>

namespace fsdp2::cli {

// Writes all of `bytes` to an open file, in one call where the system takes them at once. Throws
// Failure, which begins with `what` and a colon.
void append(int file, std::string_view bytes, const std::string& what);

}  // namespace fsdp2::cli
