#include "core/ckpt/hugging_face/hugging_face_index.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using nlohmann::json;
using Files = std::map<std::string, std::string>;

constexpr size_t kMaxDepth = 8;

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

// Takes the parser's events one by one. A tree that is checked while it grows takes time that is
// quadratic in the number of objects in a list.
class IndexReader final : public nlohmann::json_sax<json> {
 public:
  IndexReader(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  Files take() {
    FSDP2_CHECK(files_, Code::kCorruptData, "{}: has no object \"weight_map\"", file_);
    FSDP2_CHECK(!files_->empty(), Code::kCorruptData, "{}: weight_map is empty", file_);
    return std::move(*files_);
  }

  bool start_object(size_t /*size*/) override {
    open("object");
    is_in_map_ = open_.size() == 2 && key_ == "weight_map";
    if (is_in_map_) {
      files_.emplace();
    }
    return true;
  }
  bool start_array(size_t /*size*/) override {
    FSDP2_CHECK(!open_.empty(), Code::kCorruptData, "{}: is a list, expected an object", file_);
    return open("array");
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    FSDP2_CHECK(open_.back().insert(name).second, Code::kCorruptData, "{}: has {} twice", file_,
                printable_name(name));
    key_ = std::move(name);
    return true;
  }

  bool string(string_t& name) override {
    if (is_in_map_) {
      FSDP2_CHECK(stays_inside(name), Code::kCorruptData,
                  "{}: weight_map.{}: {} is not a path inside the directory", file_,
                  printable_name(key_), printable_name(name));
      files_->emplace(key_, std::move(name));
    }
    return true;
  }
  bool null() override { return pass("null"); }
  bool boolean(bool /*value*/) override { return pass("boolean"); }
  bool number_integer(number_integer_t /*value*/) override { return pass("number"); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return pass("number"); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override {
    return pass("number");
  }
  bool binary(binary_t& /*value*/) override { return false; }

  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    FSDP2_CHECK(dynamic_cast<const json::parse_error*>(&error) != nullptr, Code::kCorruptData,
                "{}: is not valid JSON: it has a number beyond what numbers hold, where an index "
                "has names of tensors and files",
                file_);
    const std::string where = position > text_.size()
                                  ? fmt::format(": it ends too soon, after {} bytes", text_.size())
                                  : fmt::format(" at byte {} of {}", position, text_.size());
    fail(Code::kCorruptData,
         "{}: is not valid JSON{}: the index is damaged, and has to be downloaded or copied anew",
         file_, where);
  }

 private:
  bool open(const char* what) {
    pass(what);
    FSDP2_CHECK(open_.size() < kMaxDepth, Code::kCorruptData, "{}: is nested more than {} deep",
                file_, kMaxDepth);
    open_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    is_in_map_ = false;
    return true;
  }
  // A value that is no text: refused inside weight_map.
  bool pass(const char* found) const {
    FSDP2_CHECK(!is_in_map_, Code::kCorruptData,
                "{}: weight_map.{}: expected a file name, found {}", file_, printable_name(key_),
                found);
    return true;
  }

  const std::string& text_;
  const std::string& file_;
  std::optional<Files> files_;
  std::vector<std::set<std::string>> open_;  // the keys of each object that is open; none of a list
  std::string key_;                          // the last one
  bool is_in_map_ = false;
};

}  // namespace

std::map<std::string, std::string> parse_hugging_face_index(const std::string& text,
                                                            const std::string& file) {
  // The parser takes a null byte for the end of its input.
  FSDP2_CHECK(text.find('\0') == std::string::npos, Code::kCorruptData, "{}: is not JSON", file);
  IndexReader reader(text, file);
  json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace fsdp2::ckpt
