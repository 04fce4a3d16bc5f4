#include "core/config/dialects/device_list.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

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

// What stands between `open` and `close`, if the text begins and ends with them.
bool take_inside(std::string* text, const std::string& open, const std::string& close) {
  const bool is_inside = text->size() >= open.size() + close.size() &&
                         text->compare(0, open.size(), open) == 0 &&
                         text->compare(text->size() - close.size(), close.size(), close) == 0;
  if (is_inside) {
    *text = text->substr(open.size(), text->size() - open.size() - close.size());
  }
  return is_inside;
}

// The numbers with commas between them that all of the text is; else none.
std::vector<int64_t> numbers_in(const std::string& text) {
  constexpr size_t kMostDigits = 7;
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string digits = text.substr(begin, end - begin);
    if (digits.empty() || digits.size() > kMostDigits ||
        digits.find_first_not_of("0123456789") != std::string::npos) {
      return {};
    }
    numbers.push_back(std::stoll(digits));
    begin = end + 1;
  }
  return numbers;
}

// One term of a sum.
void add_term(const std::string& term, const Value& value, Devices* devices) {
  std::string inside = term;
  const bool is_list = take_inside(&inside, "[", "]");
  const bool is_range = !is_list && (take_inside(&inside, "list(range(", "))") ||
                                     take_inside(&inside, "range(", ")"));
  const std::vector<int64_t> numbers = numbers_in(inside);
  if (is_range && (numbers.size() == 2 || numbers.size() == 3)) {
    devices->add_range(numbers[0], numbers[1], numbers.size() == 3 ? numbers[2] : 1);
  } else if (is_list && !numbers.empty()) {
    for (const int64_t device : numbers) {
      devices->add(device);
    }
  } else {
    value.refuse_type(kExpected);
  }
}

}  // namespace

int64_t count_devices(const Value& value) {
  Devices devices(value);
  if (value.node.kind == Node::Kind::kList) {
    for (const Node& item : value.node.items) {
      devices.add(Value{item, value.path}.as_whole());
    }
    return devices.count();
  }
  const std::string text = without_blanks(value.node.text);
  if (value.node.kind != Node::Kind::kText) {
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
