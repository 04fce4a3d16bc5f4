#include "core/ckpt/bytes/manifest.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/bytes/json_number.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = "fsdp2-manifest ";
constexpr int kVersion = 1;
constexpr int64_t kMaxManifestBytes = int64_t{1} << 31;

bool comes_before(const ManifestItem& item, const std::pair<const std::string&, int64_t>& place) {
  return item.file != place.first ? item.file < place.first : item.offset < place.second;
}

int64_t number(const Json& json, const char* what, const std::string& path) {
  const auto value = whole_number(json);
  FSDP2_CHECK(value, Code::kCorruptData, "{}: {} is no whole number below 2^63", path, what);
  return *value;
}

ManifestItem parse_item(const Json& json, const std::string& path) {
  ManifestItem item{json.at(0).get<std::string>(),
                    number(json.at(1), "an item's offset", path),
                    number(json.at(2), "an item's size", path),
                    printable_name(json.at(3).get<std::string>()),
                    {}};
  auto blocks = parse_checksums(json.at(4).get_ref<const std::string&>());
  FSDP2_CHECK(blocks && static_cast<int64_t>(blocks->size()) == block_count(item.bytes),
              Code::kCorruptData, "{}: item {} is described by sizes that do not fit", path,
              item.name);
  item.blocks = std::move(*blocks);
  return item;
}

Manifest parse(std::string_view body, const std::string& path) {
  Manifest manifest;
  const Json json = Json::parse(body);
  const int64_t block_bytes = number(json.at("block_bytes"), "block_bytes", path);
  FSDP2_CHECK(block_bytes == kBlockBytes, Code::kUnsupported,
              "{}: has blocks of {} bytes, expected {}: written by a newer version?", path,
              block_bytes, kBlockBytes);
  for (const auto& [name, entry] : json.at("files").items()) {
    ManifestFile file{number(entry.at("bytes"), "a file's size", path), std::nullopt};
    if (entry.contains("checksum")) {
      file.checksum = parse_checksum(entry.at("checksum").get<std::string>());
    }
    manifest.files.emplace(name, file);
  }
  for (const Json& item : json.at("items")) {
    manifest.items.push_back(parse_item(item, path));
  }
  std::sort(manifest.items.begin(), manifest.items.end(),
            [](const ManifestItem& a, const ManifestItem& b) {
              return comes_before(a, {b.file, b.offset});
            });
  return manifest;
}

// All versions are framed alike: the first line has the version and the checksum of what follows.
struct Frame {
  int version = 0;  // 0: there is no such frame, or the checksum is another
  std::string_view body;
};

Frame read_frame(std::string_view text) {
  Frame frame;
  const size_t end = text.find('\n');
  if (text.substr(0, kMark.size()) != kMark || end == std::string_view::npos) {
    return frame;
  }
  const std::string_view line = text.substr(kMark.size(), end - kMark.size());
  int version = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), version);
  const auto digits = static_cast<size_t>(parsed.ptr - line.data());
  if (parsed.ec != std::errc() || line.substr(digits, 1) != " ") {
    return frame;
  }
  const auto said = parse_checksum(line.substr(digits + 1));
  frame.body = text.substr(end + 1);
  if (said && *said == checksum(frame.body.data(), frame.body.size())) {
    frame.version = version;
  }
  return frame;
}

}  // namespace

const ManifestItem* Manifest::find(const std::string& file, int64_t offset) const {
  const auto found =
      std::lower_bound(items.begin(), items.end(),
                       std::pair<const std::string&, int64_t>(file, offset), comes_before);
  const bool there = found != items.end() && found->file == file && found->offset == offset;
  return there ? &*found : nullptr;
}

// Not by way of a Json of the whole: one of lists or objects ends the process where there is no
// memory for its destructor.
std::string encode_manifest(const Manifest& manifest) {
  const auto text = [](const std::string& value) { return Json(value).dump(); };
  std::string body = fmt::format("{{\"block_bytes\":{},\"files\":{{", kBlockBytes);
  auto out = std::back_inserter(body);
  const char* separator = "";
  for (const auto& [name, file] : manifest.files) {
    fmt::format_to(out, "{}{}:{{\"bytes\":{}", separator, text(name), file.bytes);
    if (file.checksum) {
      fmt::format_to(out, ",\"checksum\":\"{}\"", checksum_text(*file.checksum));
    }
    body += '}';
    separator = ",";
  }
  body += "},\"items\":[";
  separator = "";
  for (const ManifestItem& item : manifest.items) {
    fmt::format_to(out, "{}[{},{},{},{},\"{}\"]", separator, text(item.file), item.offset,
                   item.bytes, text(item.name), checksums_text(item.blocks));
    separator = ",";
  }
  body += "]}\n";
  return fmt::format("{}{} {}\n{}", kMark, kVersion,
                     checksum_text(checksum(body.data(), body.size())), body);
}

std::optional<Manifest> read_manifest(const std::string& directory) {
  const std::string path = directory + "/" + kManifestFile;
  std::string text;
  try {
    text = read_text_file(path, kMaxManifestBytes);
  } catch (const Error& error) {
    if (error.code() == Code::kNotFound) {
      return std::nullopt;
    }
    throw;
  }
  const Frame frame = read_frame(text);
  FSDP2_CHECK(frame.version > 0, Code::kCorruptData,
              "{}: is damaged: its checksum is not that of its text", path);
  FSDP2_CHECK(frame.version == kVersion, Code::kUnsupported,
              "{}: has version {}, this library reads version {}: use a newer libfsdp2", path,
              frame.version, kVersion);
  try {
    return parse(frame.body, path);
  } catch (const Json::exception& error) {
    fail(Code::kCorruptData, "{}: is not a manifest of this version: {}", path, error.what());
  }
}

}  // namespace fsdp2::ckpt
