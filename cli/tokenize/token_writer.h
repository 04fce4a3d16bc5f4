// Writes a token file, little-endian, which appears under its name as a whole or not at all.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace fsdp2::cli {

class TokenWriter {
 public:
  // Tokens are uint16 up to a vocabulary of 65536, and uint32 above. Throws Failure, as all that
  // follows.
  TokenWriter(std::string path, int64_t vocab_size);
  // Removes what was not committed.
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  int64_t count() const { return count_; }
  int bytes_per_token() const { return bytes_per_token_; }

  void add(const std::vector<int64_t>& tokens);
  // Syncs the file to the disk and gives it its name.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  const std::string path_;
  const std::string unfinished_;  // the path until then
  const int bytes_per_token_;
  std::ofstream file_;
  int64_t count_ = 0;
  bool is_committed_ = false;
};

}  // namespace fsdp2::cli
