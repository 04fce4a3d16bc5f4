// Numbers as findings say them.
#pragma once

#include <string>

namespace fsdp2::cli {

// "1.5 GiB"
std::string size_text(double bytes);
// "0.013": so many digits that count, or all of those before the point.
std::string number_text(double number, int digits);

}  // namespace fsdp2::cli
