// A directory for what a command needs for a while.
#pragma once

#include <string>

namespace fsdp2::cli {

class ScratchDirectory {
 public:
  // A new directory among the system's temporary ones ("fsdp2-doctor": /tmp/fsdp2-doctor-k3Jx9a),
  // which is removed at the end with all that is in it. Throws std::system_error, as write does.
  explicit ScratchDirectory(const std::string& name);
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  // A place in it.
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file, and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace fsdp2::cli
