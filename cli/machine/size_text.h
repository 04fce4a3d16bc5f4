// Numbers as people read them.
#pragma once

#include <string>

namespace fsdp2::cli {

// "1.5 GB": powers of ten, as options and plans have them.
std::string size_text(double bytes);
// "0.013": so many significant digits, and never fewer than there are before the point.
std::string number_text(double number, int digits);

}  // namespace fsdp2::cli
