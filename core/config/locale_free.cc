#include "core/config/locale_free.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <system_error>

namespace fsdp2::config {

namespace {

std::string_view without_blanks_around(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\n\v\f\r";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace

std::optional<double> decimal_in(const std::string& given) {
  const std::string_view text = without_blanks_around(given);
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
