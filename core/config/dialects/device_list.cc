#include "core/config/dialects/device_list.h"

#include <algorithm>
#include <regex>
#include <set>
#include <string>

namespace fsdp2::config {

namespace {

constexpr int64_t kMostDevices = 1 << 20;
constexpr char kExpected[] = "a list of devices, as [0, 1] or list(range(0,8))";

std::string without_blanks(std::string text) {
  text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == ' '; }), text.end());
  return text;
}

class Devices {
 public:
  explicit Devices(const Value& value) : value_(value) {}

  void add(int64_t device) {
    if (device < 0 || device >= kMostDevices) {
      value_.refuse("device " + std::to_string(device) + " is not one of 0 to " +
                    std::to_string(kMostDevices - 1));
    }
    if (!devices_.insert(device).second) {
      value_.refuse("device " + std::to_string(device) + " is given twice");
    }
  }

  void add_range(int64_t begin, int64_t end, int64_t step) {
    if (step < 1 || end > kMostDevices) {
      value_.refuse_type(kExpected);
    }
    for (int64_t device = begin; device < end; device += step) {
      add(device);
    }
  }

  int64_t count() const {
    if (devices_.empty()) {
      value_.refuse("names no device");
    }
    return static_cast<int64_t>(devices_.size());
  }

 private:
  const Value& value_;
  std::set<int64_t> devices_;
};

int64_t number_in(const std::string& digits) { return digits.empty() ? 1 : std::stoll(digits); }

// One term of a sum.
void add_term(const std::string& term, const Value& value, Devices* devices) {
  static const std::regex range(
      R"((?:list\()?range\(([0-9]{1,7}),([0-9]{1,7})(?:,([0-9]{1,7}))?\)(\))?)");
  static const std::regex list(R"(\[[0-9]{1,7}(,[0-9]{1,7})*\])");
  std::smatch parts;
  if (std::regex_match(term, parts, range) &&
      (term.rfind("list(", 0) == 0) == (parts[4].length() > 0)) {
    devices->add_range(number_in(parts[1]), number_in(parts[2]), number_in(parts[3]));
  } else if (std::regex_match(term, list)) {
    static const std::regex number("[0-9]+");
    for (std::sregex_iterator i(term.begin(), term.end(), number), end; i != end; ++i) {
      devices->add(std::stoll(i->str()));
    }
  } else {
    value.refuse_type(kExpected);
  }
}

}  // namespace

int64_t count_devices(const Value& value) {
  constexpr size_t kLongest = 1000;  // the library's regular expressions recurse over the text
  Devices devices(value);
  if (value.node.kind == Node::Kind::kList) {
    for (const Node& item : value.node.items) {
      devices.add(Value{item, value.path}.as_whole());
    }
    return devices.count();
  }
  const std::string text = without_blanks(value.node.text);
  if (value.node.kind != Node::Kind::kText || text.size() > kLongest) {
    value.refuse_type(kExpected);
  }
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    add_term(text.substr(begin, end - begin), value, &devices);
    begin = end + 1;
  }
  return devices.count();
}

}  // namespace fsdp2::config
