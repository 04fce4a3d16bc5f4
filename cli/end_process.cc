#include "cli/end_process.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

namespace fsdp2::cli {

void end_process(int exit_code) {
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace fsdp2::cli
