#include "core/exported/program/json_document.h"

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

constexpr size_t kMaxDepth = 64;
constexpr int64_t kMaxValues = int64_t{1} << 24;  // each costs some hundred bytes

// Makes values of the parser's events. The library's own parser with a callback takes time that is
// quadratic in the length of an array.
class TreeBuilder : public nlohmann::json_sax<json> {
 public:
  explicit TreeBuilder(const std::string& label) : label_(label) {}

  json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_object(size_t /*size*/) override { return open(json::object()); }
  bool start_array(size_t /*size*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [entry, is_new] = open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    FSDP2_CHECK(is_new, Code::kCorruptData, "{}: an object has {} twice", label_,
                printable_name(name));
    member_ = &entry->second;
    return true;
  }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    fail(Code::kCorruptData, "{}: is not valid JSON at byte {}: {}", label_, position,
         printable_name(error.what()));
  }

 private:
  json& place(json value) {
    FSDP2_CHECK(++values_ <= kMaxValues, Code::kCorruptData,
                "{}: has more than {} values, which is the most that is accepted", label_,
                kMaxValues);
    if (open_.empty()) {
      return root_ = std::move(value);
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<json::array_t&>();
      items.push_back(std::move(value));
      return items.back();
    }
    return *member_ = std::move(value);
  }

  bool add(json value) {
    place(std::move(value));
    return true;
  }

  bool open(json value) {
    FSDP2_CHECK(open_.size() < kMaxDepth, Code::kCorruptData, "{}: is nested more than {} deep",
                label_, kMaxDepth);
    open_.push_back(&place(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& label_;
  json root_;
  std::vector<json*> open_;  // arrays and objects, from the outermost inwards
  json* member_ = nullptr;   // of the innermost object: where the next value goes
  int64_t values_ = 0;
};

json parse(const std::string& text, const std::string& label) {
  // The parser takes a null byte for the end of its input.
  FSDP2_CHECK(text.find('\0') == std::string::npos, Code::kCorruptData, "{}: is not JSON", label);
  TreeBuilder builder(label);
  json::sax_parse(text, &builder);
  return builder.take();
}

// The path from `value` down to `wanted`, which is one of the values below it, by its address.
std::optional<std::string> path_below(const json& value, const json& wanted) {
  if (&value == &wanted) {
    return std::string();
  }
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      if (auto rest = path_below(value[i], wanted)) {
        return fmt::format("[{}]{}", i, *rest);
      }
    }
  } else if (value.is_object()) {
    for (const auto& [key, child] : value.get_ref<const json::object_t&>()) {
      if (auto rest = path_below(child, wanted)) {
        return fmt::format(".{}{}", printable_name(key), *rest);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

JsonDocument::JsonDocument(const std::string& text, std::string label)
    : label_(std::move(label)), root_(parse(text, label_)) {}

std::string JsonDocument::path_of(const json& value) const {
  const std::string path = path_below(root_, value).value_or("");
  return path.empty() ? "the text" : path.front() == '.' ? path.substr(1) : path;
}

void JsonDocument::refuse_type(const json& value, const char* expected) const {
  refuse(Code::kCorruptData, value, "expected {}, found {}", expected, value.type_name());
}

const json::object_t& JsonDocument::object(const json& value) const {
  if (!value.is_object()) {
    refuse_type(value, "an object");
  }
  return value.get_ref<const json::object_t&>();
}

const json& JsonDocument::member(const json& object_value, const char* key) const {
  const json::object_t& members = object(object_value);
  const auto found = members.find(key);
  if (found == members.end()) {
    refuse(Code::kCorruptData, object_value, "has no \"{}\"", key);
  }
  return found->second;
}

const json* JsonDocument::find(const json& object_value, const char* key) const {
  const json::object_t& members = object(object_value);
  const auto found = members.find(key);
  return found == members.end() || found->second.is_null() ? nullptr : &found->second;
}

std::pair<std::string_view, const json&> JsonDocument::choice(const json& object_value) const {
  const json::object_t& members = object(object_value);
  if (members.size() != 1) {
    refuse(Code::kCorruptData, object_value, "expected an object of one key, found {}",
           members.size());
  }
  return {members.begin()->first, members.begin()->second};
}

const json::array_t& JsonDocument::array(const json& value) const {
  if (!value.is_array()) {
    refuse_type(value, "an array");
  }
  return value.get_ref<const json::array_t&>();
}

const std::string& JsonDocument::text(const json& value) const {
  if (!value.is_string()) {
    refuse_type(value, "a text");
  }
  return value.get_ref<const std::string&>();
}

int64_t JsonDocument::integer(const json& value) const {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) {
    refuse_type(value, "a whole number of 64 bits");
  }
  return value.get<int64_t>();
}

double JsonDocument::number(const json& value) const {
  if (value == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  if (value == "-Infinity") {
    return -std::numeric_limits<double>::infinity();
  }
  if (value == "NaN") {
    return std::nan("");
  }
  if (!value.is_number()) {
    refuse_type(value, "a number");
  }
  return value.get<double>();
}

bool JsonDocument::flag(const json& value) const {
  if (!value.is_boolean()) {
    refuse_type(value, "true or false");
  }
  return value.get<bool>();
}

}  // namespace fsdp2::exported
