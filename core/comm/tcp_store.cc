#include "core/comm/tcp_store.h"

#include <c10/util/Logging.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "core/base/error.h"
#include "core/comm/patience.h"
#include "core/comm/sigpipe.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kConnect{1000};  // for one attempt to connect

bool accepts(const addrinfo& address) {
  const int number = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (number < 0) {
    return false;
  }
  static_cast<void>(::connect(number, address.ai_addr, address.ai_addrlen));  // poll tells
  pollfd connected{number, POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof(error);
  const bool accepted = poll(&connected, 1, static_cast<int>(kConnect.count())) == 1 &&
                        getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
                        error == 0;
  close(number);
  return accepted;
}

// Of a connection that ends LibTorch would print a warning with a stack; who used it gets an error
// that says so. TORCH_CPP_LOG_LEVEL brings them back.
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

TcpStorePtr open(const std::string& host, uint16_t port, milliseconds timeout, bool serve) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = serve;
  options.waitWorkers = false;  // meet_at waits, and tells who is missing
  options.timeout = timeout;
  keep_warnings_from_standard_error();
  const NoSigpipe guard;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

}  // namespace

TcpStorePtr serve_tcp_store(const std::string& host, uint16_t port, milliseconds timeout) {
  try {
    return open(host, port, timeout, true);
  } catch (...) {
    const std::string text = current_exception_text();
    if (text.find("EADDRINUSE") != std::string::npos) {
      fail(Code::kIo,
           "rank 0 cannot listen on port {}: it is in use; set MASTER_PORT to a free one, or end "
           "the program that holds it",
           port);
    }
    fail(Code::kComm, "rank 0 cannot keep a store at {}:{}: {}", host, port, text);
  }
}

TcpStorePtr connect_tcp_store(const std::string& host, uint16_t port,
                              std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
  std::optional<TcpStorePtr> store;
  try {
    store = answer_until(deadline, [host, port, left = std::max(left, milliseconds(1))] {
      return open(host, port, left, false);
    });
  } catch (...) {
    fail(Code::kComm, "cannot use the store at {}:{}: {}", host, port, current_exception_text());
  }
  FSDP2_CHECK(store.has_value(), Code::kTimeout,
              "{}:{} accepts connections but does not answer as a store: rank 0 is stopped, or "
              "another service listens there",
              host, port);
  return *store;
}

std::string why_unreachable(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int unknown = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found);
  if (unknown != 0) {
    return gai_strerror(unknown);
  }
  bool accepted = false;
  for (const addrinfo* one = found; one != nullptr && !accepted; one = one->ai_next) {
    accepted = accepts(*one);
  }
  freeaddrinfo(found);
  return accepted ? "" : "nobody listens there";
}

}  // namespace fsdp2
