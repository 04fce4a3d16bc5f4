#include "core/ckpt/store/path_content.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/text.h"

namespace fsdp2::ckpt {

PathContent::PathContent(std::string path) : path_(std::move(path)) {
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  FSDP2_CHECK(status.type() != std::filesystem::file_type::not_found, Code::kNotFound,
              "{}: there is no such file or directory", path_);
  FSDP2_CHECK(!error, Code::kIo, "{}: cannot look at it: {}", path_, error.message());
  is_directory_ = std::filesystem::is_directory(status);
  if (!is_directory_) {
    const MappedFile file(path_);
    begin_.resize(std::min(kBeginBytes, static_cast<size_t>(file.size())));
    file.read(0, static_cast<int64_t>(begin_.size()), begin_.data());
  }
}

bool PathContent::has_name(const std::function<bool(const std::string& name)>& is_wanted) const {
  if (!is_directory_) {
    return false;
  }
  if (!names_) {
    names_ = names_in(path_);
  }
  return std::any_of(names_->begin(), names_->end(), is_wanted);
}

bool PathContent::has_name_ending(const std::string& ending) const {
  return has_name([&](const std::string& name) { return ends_with(name, ending); });
}

}  // namespace fsdp2::ckpt
