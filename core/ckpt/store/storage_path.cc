#include "core/ckpt/store/storage_path.h"

#include <algorithm>

#include "core/base/error.h"

namespace fsdp2::ckpt {

void check_storage_path(const std::string& path) {
  const size_t scheme = path.find("://");
  const bool is_scheme =
      scheme != std::string::npos && scheme > 0 &&
      std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(scheme), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '+' || c == '-' || c == '.';
      });
  FSDP2_CHECK(!is_scheme, Code::kUnsupported,
              "{}: cannot detect a storage for {}://, expected a path of the file system", path,
              path.substr(0, scheme));
}

}  // namespace fsdp2::ckpt
