// How processes find each other: opens the store at their Place, and waits there for all ranks.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/comm/meet/place.h"
#include "core/comm/meet/store.h"

namespace fsdp2 {

// Where ranks have met.
struct MeetingPoint {
  c10::intrusive_ptr<c10d::Store> store;
  std::string own_address;  // of this machine, for the other ranks; empty: none is known
};

// Opens the store of a job of several processes and waits until all its ranks are there.
// Errors: kIo (port in use; this process may open too few files), kComm (no connection), kTimeout
// (names the ranks that are missing).
MeetingPoint open_store(const Place& place, std::chrono::milliseconds timeout);

// Says in the store that `rank` is here, and waits until all of `ranks` have said so. `look` is
// called between short waits and may throw. kTimeout names the ranks that are missing, alike on all
// that are there; kInvalidArgument says which numbers of ranks they were given, or which `versions`
// they run, which are not compared if they are empty. Once per store (a PrefixStore is one): the
// keys are "all", "count", "differ", "here/<rank>", "read", "size" and "versions".
void meet_at(c10d::Store& store, int rank, const std::vector<int>& ranks,
             std::chrono::milliseconds timeout, const std::function<void()>& look = {},
             const std::string& versions = "");

}  // namespace fsdp2
