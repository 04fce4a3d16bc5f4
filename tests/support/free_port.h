// A TCP port of this machine, for tests that have others listen on it.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

namespace fsdp2::test {

// Is bound to the port and does not listen: the system gives it to nobody who asks for any port,
// and whoever sets SO_REUSEADDR, as stores do, can listen on it. A port that was only looked up may
// be another program's by the time that it is used.
class FreePort {
 public:
  // By IPv6, which includes IPv4, where there is IPv6.
  FreePort() {
    if (!bind_any(AF_INET6) && !bind_any(AF_INET)) {
      throw std::system_error(errno, std::generic_category(), "cannot find a free port");
    }
  }
  ~FreePort() { ::close(socket_); }
  FreePort(const FreePort&) = delete;
  FreePort& operator=(const FreePort&) = delete;

  int number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

  // From here on the port is in use.
  void listen() const {
    if (::listen(socket_, 16) != 0) {
      throw std::system_error(errno, std::generic_category(), "cannot listen");
    }
  }

 private:
  bool bind_any(int family) {
    socket_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0) {
      return false;
    }
    const int on = 1;
    const int off = 0;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    ::setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));  // an error by IPv4
    sockaddr_storage address{};
    address.ss_family = static_cast<sa_family_t>(family);
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    if (::bind(socket_, name, size) != 0 || ::getsockname(socket_, name, &size) != 0) {
      const int error = errno;
      ::close(socket_);
      socket_ = -1;
      errno = error;
      return false;
    }
    // That of an IPv6 address has the same place.
    number_ = ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
    return true;
  }

  int socket_ = -1;
  int number_ = 0;
};

}  // namespace fsdp2::test
