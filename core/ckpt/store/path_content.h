// What lies at a path, as far as formats are told apart by it: the names in a directory, or how a
// file begins.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

// One thread at a time.
class PathContent {
 public:
  // Errors: kNotFound if nothing is there; kIo.
  explicit PathContent(std::string path);

  const std::string& path() const { return path_; }
  bool is_directory() const { return is_directory_; }
  // Whether there is a directory with such a name in it. Lists it when it is first asked. Errors:
  // kIo.
  bool has_name(const std::function<bool(const std::string& name)>& is_wanted) const;
  bool has_name_ending(const std::string& ending) const;
  // The first bytes of a file, at most kBeginBytes; "" of a directory.
  const std::string& begin() const { return begin_; }

  static constexpr size_t kBeginBytes = 9;

 private:
  std::string path_;
  bool is_directory_;
  std::string begin_;
  mutable std::optional<std::vector<std::string>> names_;
};

}  // namespace fsdp2::ckpt
