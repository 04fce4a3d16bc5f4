#include "capi/nouns/state_value.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::capi {

namespace {

using Json = nlohmann::ordered_json;

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

Json to_json(const ckpt::PythonValue& value);

Json list_of(const std::vector<ckpt::PythonValue>& items) {
  Json list = Json::array();
  for (const ckpt::PythonValue& item : items) {
    list.push_back(to_json(item));
  }
  return list;
}

struct ToJson {
  Json operator()(const std::monostate& /*none*/) const { return nullptr; }
  Json operator()(bool flag) const { return flag; }
  Json operator()(int64_t number) const { return number; }
  Json operator()(double number) const { return number; }
  Json operator()(const std::string& text) const { return text; }
  Json operator()(const ckpt::PythonList& list) const { return list_of(list.items); }
  Json operator()(const ckpt::PythonTuple& tuple) const { return list_of(tuple.items); }
  template <typename Other>
  Json operator()(const Other& /*value*/) const {
    fail(Code::kUnsupported, "the value has no form in JSON");
  }
};

Json to_json(const ckpt::PythonValue& value) { return std::visit(ToJson(), value.value); }

}  // namespace

ckpt::PythonValue value_from_json(const std::string& json) {
  Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  FSDP2_CHECK(!parsed.is_discarded(), Code::kInvalidArgument, "json: expected JSON, found {}",
              json);
  return from_json(parsed);
}

std::string value_to_json(const ckpt::PythonValue& value) {
  return to_json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fsdp2::capi
