// The store that ranks meet at, and what it asks of the machine that it runs on.
#include "core/comm/meet/tcp_store.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "core/base/error.h"

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
// Counts the store's thread: the clients of these tests are on the main thread.
std::atomic<int> names_asked_for{0};
std::atomic<int> by_ipv6{0};

}  // namespace

// In place of the C library's, also for LibTorch.
extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address, socklen_t length, char* host, socklen_t host_size, char* service,
    socklen_t service_size, int flags) {
  static const auto original =
      reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_NEXT, "getnameinfo"));
  if (std::this_thread::get_id() != main_thread) {
    ++names_asked_for;
    by_ipv6 += address->sa_family == AF_INET6 ? 1 : 0;
  }
  return original(address, length, host, host_size, service, service_size, flags);
}

namespace fsdp2 {
namespace {

constexpr std::chrono::milliseconds kTimeout{10000};

TEST(TcpStore, AtAnIpv4AddressAsksForNamesThatTheHostsFileKnows) {
  const TcpStorePtr store = serve_tcp_store("127.0.0.1", 0, kTimeout);
  EXPECT_EQ(store->add("key", 2), 2);
  EXPECT_EQ(store->clone()->add("key", 3), 5);
  EXPECT_GE(names_asked_for, 2);
  EXPECT_EQ(by_ipv6, 0) << "as an IPv6 address 127.0.0.1 is a question for a name server";
}

TEST(TcpStore, AtAPortThatIsInUseSaysSo) {
  const TcpStorePtr store = serve_tcp_store("127.0.0.1", 0, kTimeout);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    try {
      serve_tcp_store(host, store->getPort(), kTimeout);
      ADD_FAILURE() << host << ": two stores at one port";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kIo) << host;
      EXPECT_NE(error.message().find("it is in use; set MASTER_PORT"), std::string::npos)
          << error.message();
    }
  }
}

}  // namespace
}  // namespace fsdp2
