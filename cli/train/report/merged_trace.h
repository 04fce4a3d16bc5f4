// The traces of all ranks as one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fsdp2::cli {

struct RankTrace {
  int64_t rank = 0;
  std::string file;
};

// Writes one trace in Chrome's format, in which each process is named by its rank and ranks stand
// in order on one clock, that of their machines. What no event refers to is left out. Throws
// Failure, which names the file.
void merge_traces(const std::vector<RankTrace>& traces, const std::string& path);

}  // namespace fsdp2::cli
