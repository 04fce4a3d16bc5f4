#include "cli/run/rendezvous.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace fsdp2::cli {

namespace {

// A socket of this family, bound to any free port on all addresses (IPv6 includes IPv4); -1 with
// errno if there is none.
int bind_any(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return -1;
  }
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage address{};
  address.ss_family = static_cast<sa_family_t>(family);
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    size = sizeof(sockaddr_in6);
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

}  // namespace

ReservedPort::ReservedPort() {
  socket_ = bind_any(AF_INET6);
  if (socket_ < 0) {
    socket_ = bind_any(AF_INET);
  }
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (socket_ < 0 || getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot find a free port");
  }
  // sin_port and sin6_port have the same offset.
  number_ = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

ReservedPort::~ReservedPort() {
  if (socket_ >= 0) {
    close(socket_);
  }
}

}  // namespace fsdp2::cli
