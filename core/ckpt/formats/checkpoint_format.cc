#include "core/ckpt/formats/checkpoint_format.h"

#include "core/base/error.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/formats/format_table.h"
#include "core/ckpt/store/path_content.h"
#include "core/ckpt/torch/detect.h"

namespace fsdp2::ckpt {

namespace {

[[noreturn]] void fail_on_unknown(const PathContent& content) {
  const std::string& path = content.path();
  if (!content.is_directory()) {
    FSDP2_CHECK(!is_old_torch_file(content), Code::kUnsupported,
                "{}: is in torch.save's format of before 1.6: load it in Python and save it again",
                path);
    FSDP2_CHECK(!content.begin().empty(), Code::kCorruptData,
                "{}: is an empty file: expected one of torch.save or safetensors", path);
    fail(Code::kUnsupported, "{}: is neither a file of torch.save nor safetensors", path);
  }
  FSDP2_CHECK(!content.has_name_ending(".distcp"), Code::kCorruptData,
              "{}: has .distcp files but no {}: the checkpoint was not finished", path,
              kDcpMetadataName);
  fail(Code::kUnsupported,
       "{}: no checkpoint in this directory: expected {}, *.safetensors, "
       "fsdp_sharded_cpt<step>_rank<rank>.pth, or what other trainers save (docs/checkpoints.md)",
       path, kDcpMetadataName);
}

}  // namespace

const char* format_name(CheckpointFormat format) { return row_of(format).name; }

Replaceable replaceable_by(CheckpointFormat format) {
  const FormatRow& row = row_of(format);
  FSDP2_CHECK(row.may_replace != nullptr, Code::kUnsupported,
              "{} is not written as a directory that appears whole", row.name);
  return row.may_replace();
}

CheckpointFormat full_format_of(const std::string& path) {
  return names_torch_file(path) ? CheckpointFormat::kPth : CheckpointFormat::kSafetensors;
}

CheckpointFormat detect_format(const std::string& path) {
  const PathContent content(path);
  for (const FormatRow& row : format_table()) {
    if (row.is_at(content)) {
      return row.format;
    }
  }
  fail_on_unknown(content);
}

}  // namespace fsdp2::ckpt
