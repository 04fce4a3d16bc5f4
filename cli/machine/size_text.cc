#include "cli/machine/size_text.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <sstream>

namespace fsdp2::cli {

std::string number_text(double number, int digits) {
  std::ostringstream text;
  if (std::abs(number) + 0.5 < std::pow(10, digits)) {
    text.precision(digits);
  } else {
    text << std::fixed;
    text.precision(0);
  }
  text << number;
  return text.str();
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {" B", " kB", " MB", " GB", " TB"};
  constexpr double kStep = 1000, kMost = 999.5;
  size_t unit = 0;
  while (bytes >= kMost && unit + 1 < kUnits.size()) {
    bytes /= kStep;
    ++unit;
  }
  return number_text(bytes, 3) + kUnits[unit];
}

}  // namespace fsdp2::cli
