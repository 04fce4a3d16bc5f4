// A program that is run to its end.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace fsdp2::cli {

struct ChildEnd {
  int exit_code = -1;      // 128 + signal, as shells report it
  bool timed_out = false;  // it was killed
  // What it has printed; only the end of it where that is more than kMostBytes.
  static constexpr size_t kMostBytes = size_t{1} << 26;
  std::string out;
  std::string err;

  // The last line of its standard error; without one, how it ended.
  std::string last_words() const;
};

// Runs a program with variables added to its environment and nothing to read. It dies with the
// process that runs it. data_bytes: the private memory that each of its processes may have; 0 or
// infinity: as much as this process may. Throws std::system_error if no further process can be
// started, and Interrupted where a signal was noted; the program is then killed.
ChildEnd run_child(const std::vector<std::string>& command,
                   const std::vector<std::pair<std::string, std::string>>& variables,
                   double timeout_s, double data_bytes = 0);

}  // namespace fsdp2::cli
