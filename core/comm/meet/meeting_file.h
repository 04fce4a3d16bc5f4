// The file of `file://`: rank 0 says in it where its store listens.
//
// Not LibTorch's FileStore, where the file is the store: a record that a killed process leaves half
// written makes all readers wait without end. This one appears whole or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2 {

class MeetingFile {
 public:
  struct Listener {
    std::vector<std::string> hosts;  // names and addresses of one machine, to be tried in order
    uint16_t port = 0;
    std::string text;  // the file's, of which no two are alike
  };

  explicit MeetingFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Says that this machine listens at `port`, and no more what the file said before. kIo,
  // kNotFound.
  void announce(uint16_t port) const;
  // Nothing if there is no file yet. kIo if it cannot be read or says something else.
  std::optional<Listener> find() const;
  // No errors: a file that stays makes the ranks of the next job look twice, no more.
  void remove() const noexcept;

 private:
  std::string path_;
};

}  // namespace fsdp2
