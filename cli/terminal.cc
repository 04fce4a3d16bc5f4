#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace fsdp2::cli {

bool is_terminal(int fd) { return isatty(fd) == 1; }

int terminal_columns(int fd) {
  const char* kind = std::getenv("TERM");
  if (!is_terminal(fd) || (kind != nullptr && std::strcmp(kind, "dumb") == 0)) {
    return 0;
  }
  winsize size{};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace fsdp2::cli
