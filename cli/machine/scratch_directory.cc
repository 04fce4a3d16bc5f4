#include "cli/machine/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace fsdp2::cli {

namespace fs = std::filesystem;

namespace {

fs::path temporary_directory() {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error);
  if (error) {
    throw std::system_error(
        error, "no directory for temporary files: expected TMPDIR to name one, or /tmp to be one");
  }
  return path;
}

}  // namespace

ScratchDirectory::ScratchDirectory(const std::string& name)
    : path_((temporary_directory() / (name + "-XXXXXX")).string()) {
  if (mkdtemp(path_.data()) == nullptr) {
    throw std::system_error(errno, std::generic_category(), path_);
  }
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string ScratchDirectory::write(const std::string& name, const std::string& text) const {
  const std::string file = path(name);
  std::ofstream stream(file, std::ios::binary);
  stream << text;
  if (!stream.flush()) {
    throw std::system_error(errno, std::generic_category(), file);
  }
  return file;
}

}  // namespace fsdp2::cli
