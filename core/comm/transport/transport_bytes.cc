#include "core/comm/transport/transport_bytes.h"

#include <atomic>

namespace fsdp2 {

namespace {

std::atomic<int64_t> received{0};

}  // namespace

int64_t transport_bytes_received() { return received.load(std::memory_order_relaxed); }

void count_transport_bytes(int64_t bytes) { received.fetch_add(bytes, std::memory_order_relaxed); }

}  // namespace fsdp2
