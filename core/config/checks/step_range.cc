#include "core/config/checks/step_range.h"

#include <cstdlib>

#include "core/config/checks/require.h"

namespace fsdp2::config {

namespace {

// -1: not a number of a step.
int64_t step_in(const std::string& text) {
  constexpr size_t kMostDigits = 18;
  const bool is_number = !text.empty() && text.size() <= kMostDigits &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? std::strtoll(text.c_str(), nullptr, 10) : -1;
}

}  // namespace

StepRange read_step_range(const std::string& flag, const std::string& text) {
  const size_t colon = text.find(':');
  const int64_t first = step_in(text.substr(0, colon));
  const int64_t last = colon == std::string::npos ? first : step_in(text.substr(colon + 1));
  require(first >= 0 && last >= first,
          flag + " " + text + ": expected FIRST:LAST, two numbers of steps, or one step");
  return {first, last};
}

}  // namespace fsdp2::config
