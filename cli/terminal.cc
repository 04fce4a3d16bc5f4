#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace fsdp2::cli {

bool is_terminal(int fd) { return isatty(fd) == 1; }

int terminal_columns(int fd) {
  if (!is_terminal(fd)) {
    return 0;
  }
  winsize size{};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace fsdp2::cli
