#include "cli/end_process.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/standard_streams.h"

namespace fsdp2::cli {

void end_process(int exit_code) {
  exit_code = exit_code_once_printed(exit_code);
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(exit_code);
}

}  // namespace fsdp2::cli
