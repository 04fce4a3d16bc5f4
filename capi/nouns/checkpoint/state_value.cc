#include "capi/nouns/checkpoint/state_value.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"
#include "core/base/json_depth.h"

namespace fsdp2::capi {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;  // include/fsdp2/state.h says so; what follows recurses

ckpt::PythonValue from_json(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return {};
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
      return json.get<int64_t>();
    case Json::value_t::number_unsigned:
      FSDP2_CHECK(json.get<uint64_t>() <= INT64_MAX, Code::kInvalidArgument,
                  "json: expected a whole number below 2^63, found {}", json.get<uint64_t>());
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array:
      break;
    default:
      fail(Code::kInvalidArgument,
           "json: expected null, a flag, a number, a text or a list, found an object; give each of "
           "its entries a name of its own");
  }
  ckpt::PythonList list;
  for (const Json& item : json) {
    list.items.push_back(from_json(item));
  }
  return list;
}

struct ToJson {
  int depth;  // of the lists around the value

  Json operator()(const std::monostate& /*none*/) const { return nullptr; }
  Json operator()(bool flag) const { return flag; }
  Json operator()(int64_t number) const { return number; }
  Json operator()(double number) const {
    FSDP2_CHECK(std::isfinite(number), Code::kUnsupported,
                "the value has {}, which JSON has no form for", number);
    return number;
  }
  Json operator()(const std::string& text) const { return text; }
  Json operator()(const ckpt::PythonList& list) const { return list_of(list.items); }
  Json operator()(const ckpt::PythonTuple& tuple) const { return list_of(tuple.items); }
  template <typename Other>
  Json operator()(const Other& /*value*/) const {
    fail(Code::kUnsupported, "the value has no form in JSON");
  }

  Json list_of(const std::vector<ckpt::PythonValue>& items) const {
    FSDP2_CHECK(depth < kMaxDepth, Code::kUnsupported,
                "the value has lists more than {} deep, which have no form in JSON here",
                kMaxDepth);
    Json list = Json::array();
    for (const ckpt::PythonValue& item : items) {
      list.push_back(std::visit(ToJson{depth + 1}, item.value));
    }
    return list;
  }
};

// What a message can hold of a text.
std::string beginning_of(const std::string& text) {
  constexpr size_t kShown = 200;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

}  // namespace

ckpt::PythonValue value_from_json(const std::string& json) {
  FSDP2_CHECK(!is_nested_deeper(json, kMaxDepth), Code::kInvalidArgument,
              "json: expected lists at most {} deep, found deeper ones", kMaxDepth);
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(!parsed.is_discarded(), Code::kInvalidArgument, "json: expected JSON, found {}",
              beginning_of(json));
  return from_json(parsed);
}

std::string value_to_json(const ckpt::PythonValue& value) {
  return std::visit(ToJson{0}, value.value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp2::capi
