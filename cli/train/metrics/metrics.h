// The JSON lines of a run: one per step and one at the end.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/train/metrics/line_file.h"

namespace fsdp2::cli {

class Metrics {
 public:
  // Writes to the file `path`; "" is standard output. The lines that the file has of steps before
  // `next_step` stay, so that a resumed run leaves what one without a break would have left.
  // What goes, goes when the first line is written. Throws Failure.
  Metrics(const std::string& path, int64_t next_step);

  bool goes_to_stdout() const { return file_.is_stdout(); }
  // Keys stay in the order in which they were added. A number that is not finite is written as
  // null, since JSON has no word for it. Throws Failure.
  void write(const nlohmann::ordered_json& line);

 private:
  LineFile file_;
};

// `value` with so many digits after the point, as the Python program rounds.
double rounded(double value, int digits);

// `value`, but NaN without its sign, which printing shows ("-nan") and which says nothing.
double printable(double value);

}  // namespace fsdp2::cli
