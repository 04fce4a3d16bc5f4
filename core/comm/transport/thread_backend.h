// A c10d backend whose ranks are threads of one process: exact, fast, for any number of ranks.
//
// A collective is a slot that every rank posts its tensors into without blocking. Once all have
// posted, it falls into one piece of copying or summing per rank, and whoever waits takes pieces
// until none is left: no rank waits for another to wait, so groups may be used in any interleaving.
// Ranks that post different calls (op, dtype, size) all get an error that names call and ranks.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <memory>

namespace fsdp2 {

class ThreadGroup;  // what the ranks of one group share

std::shared_ptr<ThreadGroup> make_thread_group(int size);

// The rank leaves when its backend is destroyed: the others then fail in calls that it has not
// posted. abort() fails all incomplete calls of the group; after it nobody touches this rank's
// tensors any more.
c10::intrusive_ptr<c10d::Backend> make_thread_backend(std::shared_ptr<ThreadGroup> group, int rank);

}  // namespace fsdp2
