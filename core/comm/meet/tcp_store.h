// LibTorch's store over TCP, opened without the growing pauses and the warnings of its client.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/comm/meet/store.h"

namespace c10d {
class TCPStore;
}  // namespace c10d

namespace fsdp2 {

using TcpStorePtr = c10::intrusive_ptr<c10d::TCPStore>;

// Opens a store that this process keeps, at `port`, or at any free port if that is 0, on all
// addresses of this machine: of IPv4 alone if the host is an IPv4 address, localhost, or a name
// whose addresses are all of IPv4, and none of them loopback. Its own client comes by loopback, so
// whether others reach the host is not tried. Looking the host up takes no longer than the
// time-out. Errors: kIo (the port is in use), kComm.
TcpStorePtr serve_tcp_store(const std::string& host, uint16_t port,
                            std::chrono::milliseconds timeout);

// Connects to a store that another process keeps and that listens already, at an address of `host`,
// which errors name. Errors: kComm, kTimeout (the listener is stopped, or is no store).
TcpStorePtr connect_tcp_store(const std::string& host, const std::string& address, uint16_t port,
                              std::chrono::steady_clock::time_point deadline);

}  // namespace fsdp2
