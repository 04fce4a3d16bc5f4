#include "core/ckpt/formats/replaced_file.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/formats/format_table.h"
#include "core/ckpt/formats/model_and_optimizer.h"
#include "core/ckpt/store/path_content.h"
#include "core/ckpt/torch/detect.h"

namespace fsdp2::ckpt {

namespace {

namespace fs = std::filesystem;

// Whether an index of a model directory names the file. A lone model.safetensors is a checkpoint.
bool is_in_index(const std::string& folder, const std::string& name) {
  constexpr int64_t kMostBytes = int64_t{1} << 28;
  for (const std::string& other : names_in(folder)) {
    if (ends_with(other, ".index.json") &&
        read_text_file(folder + "/" + other, kMostBytes).find('"' + name + '"') !=
            std::string::npos) {
      return true;
    }
  }
  return false;
}

bool is_file_of(const FormatRow& row, const std::string& folder, const std::string& name) {
  if (row.format == CheckpointFormat::kPthPerRankDirectory) {
    return is_per_rank_pth(name);
  }
  if (row.format == CheckpointFormat::kModelAndOptimizer) {
    return is_model_or_optimizer_file(name);
  }
  if (row.format == CheckpointFormat::kHuggingFaceDirectory) {
    return ends_with(name, ".safetensors") && is_in_index(folder, name);
  }
  const auto is_ours = row.may_replace != nullptr ? row.may_replace().is_ours : nullptr;
  return is_ours != nullptr && is_ours(name);
}

// Its data files may look like checkpoints of their own.
void check_is_no_part(const std::string& to, const std::string& path) {
  const std::string folder = parent_of(path);
  const std::string name = last_name_of(path);
  const PathContent content(folder);
  for (const FormatRow& row : format_table()) {
    FSDP2_CHECK(!row.is_at(content) || !is_file_of(row, folder, name), Code::kIo,
                "{}: is a part of {}, {}, which would be broken: name a new file", to, folder,
                row.name);
  }
}

}  // namespace

void check_may_replace_file(const std::string& to) {
  std::error_code error;
  if (!fs::is_regular_file(to, error)) {
    return;
  }
  // A checkpoint may have links to its files, and a link may lead to a file of one.
  check_is_no_part(to, to);
  const fs::path target = fs::canonical(to, error);
  if (!error) {
    check_is_no_part(to, target.string());
  }
  try {
    detect_format(to);
  } catch (const Error& unknown) {
    if (unknown.code() == Code::kUnsupported) {
      fail(Code::kIo, "{}, and would be lost: name a new file, or remove this one first",
           unknown.message());
    }
  }
}

}  // namespace fsdp2::ckpt
