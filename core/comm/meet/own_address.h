// Which address of this machine the other ranks of a job reach.
//
// It is the one from which this rank has reached the store: a route that is there for sure,
// whatever the host name stands for here. Ranks on the store's own machine may have come by
// loopback; those on others tell them which address of that machine is reached from there.
//
// Keys: "way" is the address by which a rank has reached the store's machine from another one.
#pragma once

#include <string>

#include "core/comm/meet/store.h"
#include "core/comm/meet/way.h"

namespace fsdp2 {

// Whether it is this machine's. One at which a machine is reached may not be: a port may be
// forwarded to it.
bool is_own_address(const std::string& address);

// Before the ranks meet. Once per rank and store, of which a PrefixStore is one.
void tell_way(c10d::Store& store, const Way& way);

// After they have met: the address, 127.0.0.1 if all ranks are on this machine, or empty if the one
// that others told is not this machine's.
std::string find_own_address(c10d::Store& store, const Way& way);

}  // namespace fsdp2
