// The store that ranks meet at, and what it asks of the machine that it runs on.
#include "core/comm/meet/tcp_store.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "core/comm/meet/own_address.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/way.h"

namespace {

constexpr char kIpv4Name[] = "ipv4.invalid";
constexpr char kIpv6Name[] = "ipv6.invalid";
constexpr char kLoopbackName[] = "own.invalid";  // as Debian has it of a machine's own name

// Questions for the name of an address, and those of them that could go to a name server.
std::atomic<int> names_asked_for{0};
std::atomic<int> by_server{0};

bool has_name_server() { return (_res.options & RES_INIT) == 0 || _res.nscount > 0; }

// These tests connect from loopback, which the file has by IPv4.
bool is_in_hosts_file(const sockaddr* address) { return address->sa_family == AF_INET; }

}  // namespace

// In place of the C library's, also for LibTorch, which asks no more once a name cannot be told: so
// every address has one, its numbers.
extern "C" __attribute__((visibility("default"))) int getnameinfo(
    const sockaddr* address, socklen_t length, char* host, socklen_t host_size, char* service,
    socklen_t service_size, int flags) {
  static const auto original =
      reinterpret_cast<decltype(&getnameinfo)>(dlsym(RTLD_NEXT, "getnameinfo"));
  if ((flags & NI_NUMERICHOST) == 0) {
    ++names_asked_for;
    by_server += has_name_server() && !is_in_hosts_file(address) ? 1 : 0;
  }
  return original(address, length, host, host_size, service, service_size, flags | NI_NUMERICHOST);
}

// The same of names that there are for these tests.
extern "C" __attribute__((visibility("default"))) int getaddrinfo(const char* node,
                                                                  const char* service,
                                                                  const addrinfo* wanted,
                                                                  addrinfo** found) {
  static const auto original =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string name = node == nullptr ? "" : node;
  const char* const known = name == kIpv4Name       ? "10.1.2.3"
                            : name == kIpv6Name     ? "fd00::1"
                            : name == kLoopbackName ? "127.0.1.1"
                                                    : node;
  return original(known, service, wanted, found);
}

namespace fsdp2 {
namespace {

// Some machines have no IPv6, and some containers.
bool has_ipv6() { return is_own_address("::1"); }

bool is_reached_at(const char* address, uint16_t port) {
  std::string why;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  return find_way(address, port, deadline, &why).has_value();
}

bool listens_by_ipv6(uint16_t port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  address.sin6_addr = in6addr_loopback;
  const bool listens =
      connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(socket);
  return listens;
}

constexpr std::chrono::milliseconds kTimeout{10000};

TEST(TcpStore, AsksNoNameServerWhoConnectsToIt) {
  names_asked_for = 0;
  by_server = 0;
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  const TcpStorePtr store = serve_tcp_store("127.0.0.1", 0, kTimeout);
  const TcpStorePtr client =
      connect_tcp_store("localhost", "127.0.0.1", store->getPort(), deadline);
  EXPECT_EQ(clone_until(deadline, client)->add("key", 1), 1);
  EXPECT_EQ(patient(kTimeout, client)->clone()->add("key", 1), 2);
  EXPECT_GE(names_asked_for, 1);
  EXPECT_EQ(by_server, 0);
  EXPECT_TRUE(has_name_server()) << "of other users of this thread";
}

TEST(TcpStore, WhereAllComeByIpv4ListensForThemAlone) {
  for (const char* host : {"127.0.0.1", "localhost", kIpv4Name}) {
    const TcpStorePtr store = serve_tcp_store(host, 0, kTimeout);
    EXPECT_EQ(store->add("key", 2), 2);
    EXPECT_EQ(store->clone()->add("key", 3), 5);
    EXPECT_FALSE(listens_by_ipv6(store->getPort()))
        << host << ": as an IPv6 address 127.0.0.1 is a question for a name server";
  }
}

TEST(TcpStore, OfANameThatOthersMayMeanOtherwiseListensForAll) {
  for (const char* host : {kLoopbackName, kIpv6Name, "unknown.invalid"}) {
    const TcpStorePtr store = serve_tcp_store(host, 0, kTimeout);
    EXPECT_TRUE(is_reached_at("127.0.0.1", store->getPort())) << host;
    EXPECT_TRUE(!has_ipv6() || is_reached_at("::1", store->getPort())) << host;
  }
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
