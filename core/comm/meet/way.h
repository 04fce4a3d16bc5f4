// How this machine reaches another: by which of its addresses, and at which of the other's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/comm/meet/patience.h"

namespace fsdp2 {

inline constexpr char kLoopback[] = "127.0.0.1";                  // this machine alone
inline constexpr char kNobodyListens[] = "nobody listens there";  // a reason of find_way's

// The two ends of a connection, as addresses in numbers.
struct Way {
  std::string here;
  std::string there;
};

// Connects for a trial. Nothing if nobody can be reached by the deadline, with the reason in `why`,
// which an earlier trial's may be in. Takes up to a second for each address of the host.
std::optional<Way> find_way(const std::string& host, uint16_t port, Deadline deadline,
                            std::string* why);
}  // namespace fsdp2
