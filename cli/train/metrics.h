// The JSON lines of a run: one per step and one at the end, each written whole and at once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fsdp2::cli {

class Metrics {
 public:
  // Opens `path` and replaces what is there; "" is standard output. Throws Failure.
  explicit Metrics(const std::string& path);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  bool goes_to_stdout() const;
  // Keys stay in the order in which they were added. Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  std::string path_;
  int file_;
};

// `value` with so many digits after the point, as the Python program rounds.
double rounded(double value, int digits);

}  // namespace fsdp2::cli
