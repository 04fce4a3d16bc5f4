#include "core/ckpt/formats/checkpoint_format.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/ckpt/bytes/manifest.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/formats/file_names.h"
#include "core/ckpt/safetensors/sharding.h"

namespace fsdp2::ckpt {

namespace {

constexpr std::string_view kZipBegin("PK\x03\x04", 4);
constexpr std::string_view kOldTorchSaveBegin("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9", 9);
constexpr size_t kBeginBytes = 9;

bool any_ends_with(const std::vector<std::string>& names, std::string_view suffix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return ends_with(name, suffix); });
}

// Whether writers of DCP directories, ours or Python's, make files of this name.
bool is_dcp_file(const std::string& name) {
  return name == ".metadata" || name == ".metadata.tmp" || name == kManifestFile ||
         ends_with(name, ".distcp") || is_dcp_part_metadata(name);
}

CheckpointFormat detect_directory(const std::string& path) {
  if (target_exists(path + "/" + kDcpMetadataName)) {
    return CheckpointFormat::kDcpDirectory;
  }
  const std::vector<std::string> names = names_in(path);
  if (std::any_of(names.begin(), names.end(), is_dcp_part_metadata)) {
    return CheckpointFormat::kDcpPartDirectory;
  }
  if (std::any_of(names.begin(), names.end(), is_shard_file)) {
    return CheckpointFormat::kShardedSafetensors;
  }
  if (any_ends_with(names, ".safetensors") || any_ends_with(names, ".safetensors.index.json")) {
    return CheckpointFormat::kHuggingFaceDirectory;
  }
  if (std::any_of(names.begin(), names.end(), is_per_rank_pth)) {
    return CheckpointFormat::kPthPerRankDirectory;
  }
  FSDP2_CHECK(!any_ends_with(names, ".distcp"), Code::kCorruptData,
              "{}: has .distcp files but no {}: the checkpoint was not finished", path,
              kDcpMetadataName);
  fail(Code::kUnsupported,
       "{}: no checkpoint in this directory: expected {}, *.safetensors, or "
       "fsdp_sharded_cpt<step>_rank<rank>.pth",
       path, kDcpMetadataName);
}

CheckpointFormat detect_file(const std::string& path) {
  const MappedFile file(path);
  std::array<char, kBeginBytes> buffer{};
  const size_t count = std::min(kBeginBytes, static_cast<size_t>(file.size()));
  file.read(0, static_cast<int64_t>(count), buffer.data());
  const std::string_view begin(buffer.data(), count);
  if (starts_with(begin, kZipBegin)) {
    return CheckpointFormat::kPth;
  }
  FSDP2_CHECK(!starts_with(begin, kOldTorchSaveBegin), Code::kUnsupported,
              "{}: is in torch.save's format of before 1.6: load it in Python and save it again",
              path);
  // Eight bytes of length, then JSON.
  if (begin.size() == kBeginBytes && begin[8] == '{') {
    return CheckpointFormat::kSafetensors;
  }
  fail(Code::kUnsupported, "{}: is neither a file of torch.save nor safetensors", path);
}

}  // namespace

bool is_dcp_part_metadata(const std::string& name) {
  return starts_with(name, "__") && ends_with(name, kDcpMetadataName);
}

bool is_per_rank_pth(const std::string& name) {
  return starts_with(name, "fsdp_sharded_cpt") && name.find("_rank") != std::string::npos &&
         ends_with(name, ".pth");
}

const char* format_name(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kDcpDirectory:
      return "a DCP directory";
    case CheckpointFormat::kDcpPartDirectory:
      return "a DCP directory with metadata of each rank";
    case CheckpointFormat::kHuggingFaceDirectory:
      return "a Hugging Face directory";
    case CheckpointFormat::kShardedSafetensors:
      return "a directory of safetensors files of each rank";
    case CheckpointFormat::kSafetensors:
      return "a safetensors file";
    case CheckpointFormat::kPth:
      return "a torch.save file";
    case CheckpointFormat::kPthPerRankDirectory:
      return "a directory of torch.save files of each rank";
  }
  return "unknown";
}

Replaceable replaceable_by(CheckpointFormat format) {
  switch (format) {
    case CheckpointFormat::kHuggingFaceDirectory:
      return {format_name(format), nullptr};
    case CheckpointFormat::kShardedSafetensors:
      return {format_name(format), is_shard_file};
    default:
      return {format_name(format), is_dcp_file};
  }
}

CheckpointFormat detect_format(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  FSDP2_CHECK(status.type() != std::filesystem::file_type::not_found, Code::kNotFound,
              "{}: there is no such file or directory", path);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot look at it: {}", path, error.message());
  return std::filesystem::is_directory(status) ? detect_directory(path) : detect_file(path);
}

}  // namespace fsdp2::ckpt
