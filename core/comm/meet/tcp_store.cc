#include "core/comm/meet/tcp_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/blocked_signal.h"
#include "core/base/error.h"
#include "core/comm/meet/no_name_server.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/way.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// LibTorch would print a warning with a stack for every connection that ends; the connection's user
// gets an error that says so. TORCH_CPP_LOG_LEVEL brings the warnings back.
void keep_warnings_from_standard_error() {
  static const bool done = [] {
    constexpr int kErrors = 2;
    if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
      c10::initLogging();
    } else {
      FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, kErrors);
    }
    return true;
  }();
  static_cast<void>(done);
}

bool is_ipv4_address(const std::string& host) {
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

// An IPv4 address that other machines may mean by a name as well: many a machine gives its own name
// a loopback address.
bool is_ipv4_elsewhere(const addrinfo& one) {
  if (one.ai_family != AF_INET) {
    return false;
  }
  constexpr uint32_t kLoopbackNet = 127;
  const auto* const address = reinterpret_cast<const sockaddr_in*>(one.ai_addr);
  return ntohl(address->sin_addr.s_addr) >> 24 != kLoopbackNet;
}

bool has_ipv4_alone(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) {
    return false;
  }
  bool alone = true;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    alone = alone && is_ipv4_elsewhere(*one);
  }
  freeaddrinfo(found);
  return alone;
}

// Whether all who come to the host come by IPv4.
bool is_reached_by_ipv4(const std::string& host, Deadline deadline) {
  return is_ipv4_address(host) || host == "localhost" ||
         answer_until(deadline, [host] { return has_ipv4_alone(host); }).value_or(false);
}

// A socket that is bound to an IPv4 port of this machine.
class Ipv4Socket {
 public:
  explicit Ipv4Socket(uint16_t port) : number_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    const int yes = 1;
    socklen_t length = sizeof(address_);
    if (number_ < 0 || setsockopt(number_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) != 0 ||
        bind(number_, address(), length) != 0 || getsockname(number_, address(), &length) != 0) {
      const int error = errno;
      close(number_);
      throw std::system_error(error, std::generic_category());
    }
  }
  ~Ipv4Socket() {
    if (number_ >= 0) {
      close(number_);
    }
  }
  Ipv4Socket(const Ipv4Socket&) = delete;
  Ipv4Socket& operator=(const Ipv4Socket&) = delete;

  uint16_t port() const { return ntohs(address_.sin_port); }
  int release() { return std::exchange(number_, -1); }

 private:
  sockaddr* address() { return reinterpret_cast<sockaddr*>(&address_); }

  int number_;
  sockaddr_in address_{};
};

TcpStorePtr open(const std::string& host, c10d::TCPStoreOptions options) {
  options.waitWorkers = false;  // meet_at waits, and tells who is missing
  keep_warnings_from_standard_error();
  const BlockedSignal guard(SIGPIPE);
  const NoNameServer files_alone;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

// LibTorch's own socket serves both address families, and the store asks, in its only thread, for
// the name of each client. An IPv4 address then appears as an IPv6 address, by which /etc/hosts
// does not know it, and a slow name server would keep the ranks waiting for seconds.
TcpStorePtr serve_at_ipv4(c10d::TCPStoreOptions options) {
  Ipv4Socket socket(options.port);
  options.port = socket.port();
  options.masterListenFd = socket.release();  // the store closes it, also if it fails
  return open(kLoopback, options);
}

}  // namespace

TcpStorePtr serve_tcp_store(const std::string& host, uint16_t port, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = true;
  options.timeout = timeout;
  try {
    return is_reached_by_ipv4(host, Clock::now() + timeout) ? serve_at_ipv4(options)
                                                            : open("localhost", options);
  } catch (...) {
    const std::string text = current_exception_text();
    if (text.find("EADDRINUSE") != std::string::npos ||
        text.find(std::generic_category().message(EADDRINUSE)) != std::string::npos) {
      fail(Code::kIo,
           "rank 0 cannot listen on port {}: it is in use; set MASTER_PORT to a free one, or end "
           "the program that holds it",
           port);
    }
    fail(Code::kComm, "rank 0 cannot keep a store at port {}: {}", port, text);
  }
}

TcpStorePtr connect_tcp_store(const std::string& host, const std::string& address, uint16_t port,
                              std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  c10d::TCPStoreOptions options;
  options.port = port;
  options.timeout = std::max(left, milliseconds(1));
  std::optional<TcpStorePtr> store;
  try {
    store = answer_until(deadline, [address, options] { return open(address, options); });
  } catch (...) {
    fail(Code::kComm, "cannot use the store at {}:{}: {}", host, port, current_exception_text());
  }
  FSDP2_CHECK(store.has_value(), Code::kTimeout,
              "{}:{} accepts connections but does not answer as a store: rank 0 is stopped, or "
              "another service listens there",
              host, port);
  return *store;
}

}  // namespace fsdp2
