#include "core/ckpt/dcp/detect.h"

#include "core/base/directory.h"
#include "core/base/text.h"
#include "core/ckpt/bytes/manifest.h"
#include "core/ckpt/dcp/metadata.h"

namespace fsdp2::ckpt {

namespace {

bool is_dcp_file(const std::string& name) {
  return name == kDcpMetadataName || name == ".metadata.tmp" || name == kManifestFile ||
         ends_with(name, ".distcp") || is_dcp_part_metadata(name);
}

}  // namespace

bool is_dcp_part_metadata(const std::string& name) {
  return starts_with(name, "__") && ends_with(name, kDcpMetadataName);
}

bool is_dcp_directory(const PathContent& content) {
  return content.is_directory() && target_exists(content.path() + "/" + kDcpMetadataName);
}

bool is_dcp_part_directory(const PathContent& content) {
  return content.has_name(is_dcp_part_metadata);
}

Replaceable replaceable_by_dcp() { return {kDcpDirectoryFormat, is_dcp_file}; }

}  // namespace fsdp2::ckpt
