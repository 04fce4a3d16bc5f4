#include "core/comm/meet/way.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

namespace fsdp2 {

namespace {

constexpr std::chrono::milliseconds kConnect{1000};  // for one attempt to connect

// "10.0.0.1", "fe80::1%eth0"; empty if the socket has no such end.
std::string address_of(int socket, decltype(getsockname) end) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, NI_MAXHOST> text{};
  const bool known = end(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                     getnameinfo(reinterpret_cast<sockaddr*>(&address), length, text.data(),
                                 text.size(), nullptr, 0, NI_NUMERICHOST) == 0;
  return known ? text.data() : "";
}

// 0, or the number of the error of an attempt to connect to the address.
int connect_to(int socket, const addrinfo& address) {
  if (::connect(socket, address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return errno;
  }
  pollfd connected{socket, POLLOUT, 0};
  int ready = 0;
  do {  // a signal makes it wait anew
    ready = poll(&connected, 1, static_cast<int>(kConnect.count()));
  } while (ready < 0 && errno == EINTR);
  if (ready != 1) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t length = sizeof(error);
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

std::optional<Way> way_to(const addrinfo& address, std::string* why) {
  const int number = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int error = number < 0 ? errno : connect_to(number, address);
  std::optional<Way> way;
  if (error == 0) {
    way = Way{address_of(number, getsockname), address_of(number, getpeername)};
    if (way->here.empty() || way->there.empty()) {
      way.reset();
      *why = "the connection was closed at once";
    }
  } else {
    *why = error == ECONNREFUSED ? kNobodyListens
           : error == ETIMEDOUT
               ? "no answer: is a firewall between the machines, or is that one down?"
               : std::generic_category().message(error);
  }
  if (number >= 0) {
    close(number);
  }
  return way;
}

// The first that there is of those to the host's addresses.
std::optional<Way> first_way(const std::string& host, uint16_t port, std::string* why) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (unknown != 0) {
    *why = gai_strerror(unknown);
    return std::nullopt;
  }
  std::optional<Way> way;
  for (const addrinfo* one = found; one != nullptr && !way; one = one->ai_next) {
    way = way_to(*one, why);
  }
  freeaddrinfo(found);
  return way;
}

}  // namespace

std::optional<Way> find_way(const std::string& host, uint16_t port, Deadline deadline,
                            std::string* why) {
  using Outcome = std::pair<std::optional<Way>, std::string>;
  auto outcome = answer_until(deadline, [host, port] {
    Outcome found;
    found.first = first_way(host, port, &found.second);
    return found;
  });
  if (outcome) {
    *why = std::move(outcome->second);
    return std::move(outcome->first);
  }
  if (why->empty()) {  // what an earlier attempt has found says more
    *why = "looking up the address has not ended: does the name server answer?";
  }
  return std::nullopt;
}

}  // namespace fsdp2
