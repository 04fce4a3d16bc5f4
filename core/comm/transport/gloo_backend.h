// Gloo groups: LibTorch's ProcessGroupGloo, with what it lacks for FSDP.
//
// - A reduce-scatter that moves the minimum: Gloo's own all-reduces a copy of the whole input. This
//   one moves the pieces by all-to-all, and sums them in wait().
// - Reductions in rank order (rank_order.h); Gloo's own ring has another order.
// - abort(), which frees what hangs in the group on this rank.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace fsdp2 {

// Collective over the group. `store` holds nothing but this group's keys. own_address: of this
// machine, where the others connect to it, unless GLOO_SOCKET_IFNAME names a device; if it is empty
// it is the host name's. Throws what LibTorch throws.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& own_address);

}  // namespace fsdp2
