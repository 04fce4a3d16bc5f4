#include "core/ckpt/hugging_face/hugging_face_index.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using nlohmann::json;

constexpr int kMaxDepth = 8;

json parse_json(const std::string& text, const std::string& file) {
  // The parser takes a null byte for the end of its input.
  FSDP2_CHECK(text.find('\0') == std::string::npos, Code::kCorruptData, "{}: is not JSON", file);
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, json::parse_event_t event, json& parsed) {
    FSDP2_CHECK(depth <= kMaxDepth, Code::kCorruptData, "{}: is nested more than {} deep", file,
                kMaxDepth);
    if (event == json::parse_event_t::object_start) {
      open_objects.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      open_objects.pop_back();
    } else if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      FSDP2_CHECK(open_objects.back().insert(name).second, Code::kCorruptData, "{}: has {} twice",
                  file, printable_name(name));
    }
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    const std::string where = error.byte > text.size()
                                  ? fmt::format(": it ends too soon, after {} bytes", text.size())
                                  : fmt::format(" at byte {} of {}", error.byte, text.size());
    fail(Code::kCorruptData,
         "{}: is not valid JSON{}: the index is damaged, and has to be downloaded or copied anew",
         file, where);
  } catch (const json::exception&) {
    fail(
        Code::kCorruptData,
        "{}: is not valid JSON: it has a number beyond what numbers hold, where an index has names "
        "of tensors and files",
        file);
  }
}

// A relative path that names something below its directory. Links are followed, as model caches
// are full of them: whoever can make one can also put any file in the directory itself.
bool stays_inside(std::string_view path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string_view::npos) {
    return false;
  }
  while (!path.empty()) {
    const size_t slash = path.find('/');
    if (path.substr(0, slash) == "..") {
      return false;
    }
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return true;
}

}  // namespace

std::map<std::string, std::string> parse_hugging_face_index(const std::string& text,
                                                            const std::string& file) {
  const json index = parse_json(text, file);
  const bool has_map =
      index.is_object() && index.contains("weight_map") && index["weight_map"].is_object();
  FSDP2_CHECK(has_map, Code::kCorruptData, "{}: has no object \"weight_map\"", file);
  std::map<std::string, std::string> shards;
  for (const auto& [name, value] : index["weight_map"].items()) {
    FSDP2_CHECK(value.is_string(), Code::kCorruptData,
                "{}: weight_map.{}: expected a file name, found {}", file, printable_name(name),
                value.type_name());
    const auto& shard = value.get_ref<const std::string&>();
    FSDP2_CHECK(stays_inside(shard), Code::kCorruptData,
                "{}: weight_map.{}: {} is not a path inside the directory", file,
                printable_name(name), printable_name(shard));
    shards.emplace(name, shard);
  }
  FSDP2_CHECK(!shards.empty(), Code::kCorruptData, "{}: weight_map is empty", file);
  return shards;
}

}  // namespace fsdp2::ckpt
