// The JSON lines of a run: one per step and one at the end, each written whole and at once.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::cli {

class Metrics {
 public:
  // Writes to the file `path`; "" is standard output. The lines that the file has of steps before
  // `next_step` stay, so that a resumed run leaves what one without a break would have left.
  // Changes nothing until the first line is written. Throws Failure.
  Metrics(const std::string& path, int64_t next_step);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  bool goes_to_stdout() const { return path_.empty(); }
  // Keys stay in the order in which they were added. Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  void open_file();

  std::string path_;
  int64_t kept_bytes_;  // of the file as it was found
  int file_ = -1;       // not opened yet
};

// `value` with so many digits after the point, as the Python program rounds.
double rounded(double value, int digits);

}  // namespace fsdp2::cli
