#include "core/ckpt/safetensors/header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/safetensors/dtype.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

// Takes the parser's events one by one and knows at each what may come next, so that no tree is
// ever built and nesting is limited by the format itself.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTensor:
        place_ = Place::kField;
        dtype_.reset();
        shape_.reset();
        offsets_.reset();
        return true;
      case Place::kMetadata:
        place_ = Place::kMetadataField;
        return true;
      default:
        refuse("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kField) {
      finish_tensor();
    }
    place_ = place_ == Place::kTop ? Place::kEnd : Place::kTop;
    return true;
  }

  bool key(string_t& text) override {
    if (place_ == Place::kTop) {
      name_ = text;
      FSDP2_CHECK(names_.insert(text).second, Code::kCorruptData, "{}: the header names {} twice",
                  file_, printable_name(text));
      place_ = text == kSafetensorsMetadataKey ? Place::kMetadata : Place::kTensor;
    } else if (place_ == Place::kMetadataField) {
      field_ = text;
      FSDP2_CHECK(header_.metadata.count(text) == 0, Code::kCorruptData,
                  "{}: the header's metadata has {} twice", file_, printable_name(text));
      place_ = Place::kMetadataValue;
    } else {
      start_field(text);
    }
    return true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadataValue) {
      header_.metadata.emplace(std::move(field_), std::move(text));
      place_ = Place::kMetadataField;
    } else if (place_ == Place::kDtype) {
      dtype_ = std::move(text);
      place_ = Place::kField;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    if (place_ == Place::kShape) {
      shape_.emplace();
      place_ = Place::kShapeItem;
    } else if (place_ == Place::kOffsets) {
      offsets_.emplace();
      place_ = Place::kOffsetsItem;
    } else {
      refuse("an array");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kField;
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShapeItem && place_ != Place::kOffsetsItem) {
      refuse("a number");
    }
    const bool is_size = place_ == Place::kShapeItem;
    FSDP2_CHECK(value <= static_cast<uint64_t>(kMaxInt64), Code::kCorruptData,
                "{}: tensor {}: {} {} is too large", file_, printable_name(name_),
                is_size ? "size" : "data offset", value);
    std::vector<int64_t>& list = is_size ? *shape_ : *offsets_;
    FSDP2_CHECK(list.size() < (is_size ? kMaxSafetensorsDims : 2), Code::kCorruptData,
                "{}: tensor {}: more than {}", file_, printable_name(name_),
                is_size ? "64 dims" : "two data offsets");
    list.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t) override { refuse("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    refuse("a number that is no 64-bit integer");
  }
  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fail(Code::kCorruptData,
         "{}: the header is not valid JSON at its byte {}: not a safetensors file, or damaged",
         file_, position);
  }

 private:
  // Where the parser stands: what the next event is about.
  enum class Place {
    kStart,
    kTop,
    kMetadata,
    kMetadataField,
    kMetadataValue,
    kTensor,
    kField,
    kDtype,
    kShape,
    kShapeItem,
    kOffsets,
    kOffsetsItem,
    kEnd,
  };

  [[noreturn]] void refuse(const char* found) const {
    const char* where = "";
    const char* expected = "";
    switch (place_) {
      case Place::kStart:
      case Place::kTop:
      case Place::kEnd:
        fail(Code::kCorruptData, "{}: expected one object as the header, found {}", file_, found);
      case Place::kMetadata:
      case Place::kMetadataField:
      case Place::kMetadataValue:
        fail(Code::kCorruptData, "{}: expected {} to map strings to strings, found {}", file_,
             kSafetensorsMetadataKey, found);
      case Place::kTensor:
      case Place::kField:
        expected = "an object";
        break;
      case Place::kDtype:
        where = ": dtype";
        expected = "a string";
        break;
      case Place::kShape:
      case Place::kShapeItem:
        where = ": shape";
        expected = "an array of sizes";
        break;
      case Place::kOffsets:
      case Place::kOffsetsItem:
        where = ": data_offsets";
        expected = "an array of two positions";
        break;
    }
    fail(Code::kCorruptData, "{}: tensor {}{}: expected {}, found {}", file_, printable_name(name_),
         where, expected, found);
  }

  void start_field(const std::string& text) {
    bool twice = false;
    if (text == "dtype") {
      place_ = Place::kDtype;
      twice = dtype_.has_value();
    } else if (text == "shape") {
      place_ = Place::kShape;
      twice = shape_.has_value();
    } else if (text == "data_offsets") {
      place_ = Place::kOffsets;
      twice = offsets_.has_value();
    } else {
      fail(Code::kCorruptData, "{}: tensor {}: unknown key {}", file_, printable_name(name_),
           printable_name(text));
    }
    FSDP2_CHECK(!twice, Code::kCorruptData, "{}: tensor {}: {} is there twice", file_,
                printable_name(name_), text);
  }

  void finish_tensor() {
    const char* missing = !dtype_ ? "dtype" : !shape_ ? "shape" : !offsets_ ? "data_offsets" : "";
    FSDP2_CHECK(*missing == '\0', Code::kCorruptData, "{}: tensor {}: {} is missing", file_,
                printable_name(name_), missing);
    const auto dtype = safetensors_dtype(*dtype_);
    FSDP2_CHECK(dtype.has_value(), Code::kUnsupported,
                "{}: tensor {}: dtype {} is not one of those supported (F32, BF16, F16, F64, BOOL, "
                "integers, F8, C64)",
                file_, printable_name(name_), printable_name(*dtype_));
    FSDP2_CHECK(offsets_->size() == 2 && (*offsets_)[0] <= (*offsets_)[1], Code::kCorruptData,
                "{}: tensor {}: data_offsets are not a begin and an end", file_,
                printable_name(name_));
    const int64_t bytes = tensor_bytes(*dtype, *shape_);
    FSDP2_CHECK(bytes >= 0, Code::kCorruptData, "{}: tensor {}: its shape is too large", file_,
                printable_name(name_));
    const int64_t range = (*offsets_)[1] - (*offsets_)[0];
    FSDP2_CHECK(range == bytes, Code::kCorruptData,
                "{}: tensor {}: its dtype and shape make {} bytes, its data_offsets {}", file_,
                printable_name(name_), bytes, range);
    SafetensorsEntry entry;
    entry.name = name_;
    entry.dtype = *dtype;
    entry.shape = std::move(*shape_);
    entry.offset = (*offsets_)[0];
    entry.bytes = bytes;
    header_.tensors.push_back(std::move(entry));
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  Place place_ = Place::kStart;
  std::unordered_set<std::string> names_;
  std::string name_;   // of the tensor at hand
  std::string field_;  // of the metadata at hand
  std::optional<std::string> dtype_;
  std::optional<std::vector<int64_t>> shape_;
  std::optional<std::vector<int64_t>> offsets_;
};

void check_cover(const std::vector<SafetensorsEntry>& tensors, int64_t data_bytes,
                 const std::string& file) {
  int64_t covered = 0;
  for (const SafetensorsEntry& entry : tensors) {
    // Sizes were checked against ranges, so offset + bytes is the end that the header gave.
    const int64_t end = entry.offset + entry.bytes;
    FSDP2_CHECK(end <= data_bytes, Code::kCorruptData,
                "{}: tensor {} ends at byte {} of the data, of which the file has {}: the file is "
                "incomplete (an interrupted download?)",
                file, printable_name(entry.name), end, data_bytes);
    FSDP2_CHECK(entry.offset >= covered, Code::kCorruptData,
                "{}: tensor {} begins at byte {} of the data, inside the tensor before it", file,
                printable_name(entry.name), entry.offset);
    FSDP2_CHECK(entry.offset == covered, Code::kCorruptData,
                "{}: bytes {} to {} of the data, before tensor {}, belong to no tensor", file,
                covered, entry.offset, printable_name(entry.name));
    covered = end;
  }
  FSDP2_CHECK(covered == data_bytes, Code::kCorruptData,
              "{}: the tensors end at byte {} of the data, of which the file has {}", file, covered,
              data_bytes);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, int64_t data_bytes,
                                           const std::string& file) {
  // The parser takes a null byte for the end of its input.
  FSDP2_CHECK(!text.empty() && text.front() == '{' && text.find('\0') == std::string_view::npos,
              Code::kCorruptData, "{}: the header is not JSON: not a safetensors file, or damaged",
              file);
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
              return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
            });
  check_cover(header.tensors, data_bytes, file);
  return header;
}

}  // namespace fsdp2::ckpt
