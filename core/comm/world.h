// One rank's membership in a job: who it is, how it reaches the others, and how it makes groups.
//
// A World comes from explicit options, or from what the launcher has left in the environment
// (torchrun and `fsdp2 run`, Slurm, Open MPI, Kubernetes). World size 1 needs no launcher and opens
// no socket. Several Worlds may exist in one process: ranks as threads each hold their own. In a
// fake World this rank is alone, however many others it was told of: collectives end at once, are
// counted, and assume that every other rank passes what this one passes.
//
// Groups of the host are there from the start, and control traffic always goes through them. Groups
// whose tensors are on another type of device need a transport between such devices, which whoever
// brings it adds to the World.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/comm.h"
#include "core/comm/meet/store.h"
#include "core/comm/meet/world_options.h"

namespace fsdp2 {

// The ranks of a group, with one connection for gathers and one for reductions. Either kind can
// thus overtake the other, while the order on each connection does not depend on timing. All
// connect at first use.
struct Group {
  std::vector<int> members;  // ranks in the world, in group order
  std::shared_ptr<Comm> gather;
  std::shared_ptr<Comm> reduce;
  // For what the host decides by, in the host's memory whatever the device of the others is. On the
  // host it is `gather`.
  std::shared_ptr<Comm> control;

  int rank() const { return gather->rank(); }
  int size() const { return gather->size(); }
  at::Device device() const { return gather->device(); }
};

struct Place;

class World {
 public:
  // Collective. Errors: kInvalidArgument (contradictory or malformed settings, with the variable's
  // name and value), kTimeout (a rank did not come), kIo / kComm (address in use, unreachable).
  static std::shared_ptr<World> join(const WorldOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  BackendKind backend() const { return backend_; }
  bool is_fake() const { return backend_ == BackendKind::kFake; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // Any thread. A call that is not answered within the time-out throws kTimeout (patience.h).
  c10d::Store& store() { return *patient_store_; }
  FailureNotice& failure() { return *failure_; }
  // Tells all ranks, this one included, that this one has failed: "rank 1: <message>".
  void publish_failure(const std::string& message);

  // The group of all ranks, for control traffic (agreement, scalars). Always there, on the host.
  Comm& control() { return *control_; }

  // The group of all ranks, on the host. Its gathers use the connection of control().
  const std::shared_ptr<const Group>& everyone() const { return everyone_; }

  // Connects the ranks of a group; `key` is its own, `rank` counts within it.
  using Transport =
      std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& key, int rank, int size)>;
  // Lets groups have their tensors on `device`, this rank's of its type. Every rank adds the same
  // types, before it makes such groups.
  void add_transport(at::Device device, Transport transport);
  // This rank's device of a type; nothing if no transport connects devices of the type.
  std::optional<at::Device> find_device(at::DeviceType type) const;

  // Every rank of the world makes these calls with the same names in the same order, and passes the
  // members of its own group, itself among them, and the device of its own that find_device gave.
  // make_comm is collective over the group, and connects it.
  std::shared_ptr<Comm> make_comm(const std::string& name, const std::vector<int>& members,
                                  at::Device device);
  std::shared_ptr<const Group> make_group(const std::string& name, const std::vector<int>& members,
                                          at::Device device);

 private:
  struct Reach {  // of a transport
    at::Device device;
    Transport connect;
  };

  World() = default;
  void meet(const WorldOptions& options, const Place& place);
  const Reach& reach(at::DeviceType type) const;
  std::shared_ptr<Comm> describe_comm(const std::string& name, const std::vector<int>& members,
                                      at::Device device);

  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
  BackendKind backend_ = BackendKind::kGloo;
  std::chrono::milliseconds timeout_{600000};
  int groups_made_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<FailureNotice> failure_;
  std::map<at::DeviceType, Reach> transports_;
  std::shared_ptr<Comm> control_;
  std::shared_ptr<const Group> everyone_;
  c10::intrusive_ptr<c10d::Store> patient_store_;  // store_, or a view of it if processes share it
};

}  // namespace fsdp2
