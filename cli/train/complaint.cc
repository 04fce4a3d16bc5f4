#include "cli/train/complaint.h"

#include <iostream>

namespace fsdp2::cli {

void complain(const std::string& rank, const std::string& message) {
  const std::string who = rank.empty() ? "" : "rank " + rank + ": ";
  std::cerr << "fsdp2 train: " + who + message + "\n" << std::flush;
}

}  // namespace fsdp2::cli
