#include "cli/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <iostream>

namespace fsdp2::cli {

void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) == -1) {
      // The least free number, which is this one. Opened the wrong way round, it is of no use.
      static_cast<void>(open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
  }
}

int exit_code_once_printed(int exit_code) {
  std::cout.flush();
  if (std::cout || exit_code != 0) {
    return exit_code;
  }
  std::cerr << "fsdp2: standard output cannot be written: some of it is lost\n" << std::flush;
  return 1;
}

}  // namespace fsdp2::cli
