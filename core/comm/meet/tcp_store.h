// LibTorch's store over TCP, opened without its client's growing pauses and its warnings.
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

// One kept by this process on all addresses of this machine, or all of IPv4 if the host is such an
// address; at any free port if `port` is 0. Errors: kIo (the port is in use), kComm.
TcpStorePtr serve_tcp_store(const std::string& host, uint16_t port,
                            std::chrono::milliseconds timeout);

// One kept by another process, which listens already. Errors: kComm, kTimeout (who listens there is
// stopped, or is no store).
TcpStorePtr connect_tcp_store(const std::string& host, uint16_t port,
                              std::chrono::steady_clock::time_point deadline);

// Empty if somebody listens there, else why nobody can be reached. Takes up to a second for each
// address of the host.
std::string why_unreachable(const std::string& host, uint16_t port);

}  // namespace fsdp2
