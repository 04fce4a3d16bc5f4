#include "core/nn/stock/layer_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_depth.h"
#include "core/base/nearest.h"

namespace fsdp2::nn {

namespace {

using Json = nlohmann::json;

constexpr int64_t kLargestSize = int64_t{1} << 40;
constexpr size_t kMostDims = 16;

// A short form of a value for messages of one line.
std::string shown(const Json& value) {
  constexpr size_t kLongest = 60;
  if (value.is_structured()) {
    return value.is_array() ? fmt::format("an array of {}", value.size()) : "an object";
  }
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

// The text is one flat object with arrays of numbers, so no reader recurses far.
Json parsed(const std::string& kind, const std::string& text) {
  constexpr int kMaxDepth = 8;
  if (text.empty()) {
    return Json::object();
  }
  FSDP2_CHECK(!is_nested_deeper(text, kMaxDepth), Code::kInvalidArgument,
              "{}: the options are nested more than {} deep", kind, kMaxDepth);
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail(Code::kInvalidArgument, "{}: the options are not valid JSON at byte {}", kind, error.byte);
  } catch (const Json::exception&) {
    fail(Code::kInvalidArgument,
         "{}: the options are not valid JSON: a number is beyond what numbers hold", kind);
  }
}

bool is_within(const Json& value, int64_t least, int64_t most) {
  const bool fits_int64 =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  return fits_int64 && value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

std::string range_of(int64_t least, int64_t most) {
  return fmt::format("an integer from {} to {}", least, most);
}

}  // namespace

LayerOptions::LayerOptions(std::string kind, std::vector<std::string> known,
                           const std::string& text)
    : kind_(std::move(kind)), known_(std::move(known)), json_(parsed(kind_, text)) {
  FSDP2_CHECK(json_.is_object(), Code::kInvalidArgument,
              "{}: expected the options as a JSON object, found {}", kind_, shown(json_));
  for (const auto& entry : json_.items()) {
    if (std::find(known_.begin(), known_.end(), entry.key()) != known_.end()) {
      continue;
    }
    const std::string meant = nearest(entry.key(), known_);
    fail(Code::kInvalidArgument, "{} has no option {}; {}", kind_, shown(entry.key()),
         !meant.empty()   ? fmt::format("did you mean \"{}\"?", meant)
         : known_.empty() ? "it has none"
                          : fmt::format("it has {}", fmt::join(known_, ", ")));
  }
}

const Json* LayerOptions::find(const char* name) const {
  FSDP2_CHECK(std::find(known_.begin(), known_.end(), name) != known_.end(), Code::kInternal,
              "{} does not list its option {}", kind_, name);
  const auto entry = json_.find(name);
  return entry == json_.end() || entry->is_null() ? nullptr : &*entry;
}

const Json* LayerOptions::get(const char* name, bool has_default,
                              const std::string& expected) const {
  const Json* value = find(name);
  FSDP2_CHECK(value != nullptr || has_default, Code::kInvalidArgument,
              "{} needs the option \"{}\" ({})", kind_, name, expected);
  return value;
}

void LayerOptions::refuse(const char* name, const std::string& expected, const Json& found) const {
  fail(Code::kInvalidArgument, "{}: \"{}\" should be {}, found {}", kind_, name, expected,
       shown(found));
}

int64_t LayerOptions::integer(const char* name, int64_t least, int64_t most,
                              std::optional<int64_t> value) const {
  const Json* found = get(name, value.has_value(), range_of(least, most));
  if (found == nullptr) {
    return *value;
  }
  if (!is_within(*found, least, most)) {
    refuse(name, range_of(least, most), *found);
  }
  return found->get<int64_t>();
}

int64_t LayerOptions::size(const char* name, std::optional<int64_t> value) const {
  return integer(name, 1, kLargestSize, value);
}

std::vector<int64_t> LayerOptions::integers(const char* name, size_t count, int64_t least,
                                            std::optional<int64_t> value) const {
  const std::string expected =
      fmt::format("{}, or an array of {}", range_of(least, kLargestSize), count);
  const Json* found = get(name, value.has_value(), expected);
  if (found == nullptr || is_within(*found, least, kLargestSize)) {
    return std::vector<int64_t>(count, found == nullptr ? *value : found->get<int64_t>());
  }
  const bool fits = found->is_array() && found->size() == count &&
                    std::all_of(found->begin(), found->end(), [&](const Json& one) {
                      return is_within(one, least, kLargestSize);
                    });
  if (!fits) {
    refuse(name, expected, *found);
  }
  return found->get<std::vector<int64_t>>();
}

std::vector<int64_t> LayerOptions::shape(const char* name) const {
  const Json* found = get(name, /*has_default=*/false, "a size, or an array of sizes");
  const size_t dims = found->is_array() ? found->size() : 1;
  if (dims < 1 || dims > kMostDims) {
    refuse(name, fmt::format("a size, or an array of 1 to {}", kMostDims), *found);
  }
  return integers(name, dims, 1);
}

double LayerOptions::number(const char* name, double least, double most, const char* expected,
                            std::optional<double> value) const {
  const Json* found = get(name, value.has_value(), expected);
  if (found == nullptr) {
    return *value;
  }
  const bool fits = found->is_number() && std::isfinite(found->get<double>()) &&
                    found->get<double>() >= least && found->get<double>() <= most;
  if (!fits) {
    refuse(name, expected, *found);
  }
  return found->get<double>();
}

bool LayerOptions::flag(const char* name, bool value) const {
  const Json* found = get(name, /*has_default=*/true, "true or false");
  if (found == nullptr) {
    return value;
  }
  if (!found->is_boolean()) {
    refuse(name, "true or false", *found);
  }
  return found->get<bool>();
}

std::string LayerOptions::choice(const char* name, const std::vector<std::string>& choices,
                                 const std::string& value) const {
  const std::string expected = fmt::format("one of {}", fmt::join(choices, ", "));
  const Json* found = get(name, /*has_default=*/true, expected);
  if (found == nullptr) {
    return value;
  }
  const bool fits =
      found->is_string() && std::find(choices.begin(), choices.end(),
                                      found->get_ref<const std::string&>()) != choices.end();
  if (!fits) {
    refuse(name, expected, *found);
  }
  return found->get<std::string>();
}

}  // namespace fsdp2::nn
