#include "core/config/locale_free.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace fsdp2::config {

std::optional<double> decimal_in(const std::string& text) {
  const bool has_plus = text.size() > 1 && text[0] == '+' && text[1] != '-';
  const char* begin = text.data() + (has_plus ? 1 : 0);
  const char* end = text.data() + text.size();
  double number = 0;
  const std::from_chars_result read = std::from_chars(begin, end, number);
  const bool is_number = read.ec == std::errc() && read.ptr == end && std::isfinite(number);
  return is_number ? std::optional(number) : std::nullopt;
}

std::string decimal_text(double number) {
  std::array<char, 32> text{};
  const std::to_chars_result written =
      std::to_chars(text.data(), text.data() + text.size(), number);
  return std::string(text.data(), written.ptr);
}

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return text;
}

}  // namespace fsdp2::config
