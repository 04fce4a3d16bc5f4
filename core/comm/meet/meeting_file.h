// The file of `file://`, in which rank 0 says where its store listens.
//
// This is not LibTorch's FileStore, whose file is the store itself: there, a record that a killed
// process leaves half written makes all readers wait forever. This file appears whole or not at
// all.
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
    std::vector<std::string> hosts;  // names and addresses of one machine, in the order to try them
    uint16_t port = 0;
    std::string text;  // the file's text; no two files have the same
  };

  explicit MeetingFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Writes that this machine listens at `port`, in place of what an earlier job has said there, and
  // returns the file's text. kIo, also for a file of another kind, which stays as it is; kNotFound.
  std::string announce(uint16_t port) const;
  // nullopt if there is no file yet. kIo if the file cannot be read, or is not a meeting file.
  std::optional<Listener> find() const;
  // Unless another job has announced itself there since. Reports no error: a file that stays only
  // makes the ranks of the next job look twice.
  void remove(const std::string& announced) const noexcept;

 private:
  std::string path_;
};

}  // namespace fsdp2
