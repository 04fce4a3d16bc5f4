// Numbers and letters as files have them, whatever locale the host program has set: the C library's
// strtod, printf and tolower follow it.
#pragma once

#include <optional>
#include <string>

namespace fsdp2::config {

// The decimal number that all of the text is but for blanks around it; nothing for any other text,
// and for a number beyond the range of a double.
std::optional<double> decimal_in(const std::string& text);

// The shortest text that decimal_in reads as the same number.
std::string decimal_text(double number);

// With a to z for A to Z; other letters stay.
std::string lower_case(std::string text);

}  // namespace fsdp2::config
