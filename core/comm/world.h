// One rank's membership in a job: who it is, how it reaches the others, and the teams it is in. The
// World is itself the team of all ranks.
//
// A World comes from explicit options, or from what the launcher has left in the environment
// (torchrun and `fsdp2 run`, Slurm, Open MPI, Kubernetes). World size 1 needs no launcher and opens
// no socket. Several Worlds may exist in one process: ranks as threads each hold their own. In a
// fake World this rank is alone, however many others it was told of: collectives end at once, are
// counted, and assume that every other rank passes what this one passes.
//
// Groups of the host are there from the start, and control traffic always goes through them. Groups
// whose tensors are on another type of device need a transport between such devices: the plug-in of
// the device brings it (core/device), or the tensors are staged through the host where the backend
// is the host's own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/comm/meet/world_options.h"
#include "core/comm/team.h"

namespace fsdp2 {

class World final : public Team, public std::enable_shared_from_this<World> {
 public:
  // Collective. Errors: kInvalidArgument (contradictory or malformed settings, with the variable's
  // name and value), kTimeout (a rank did not come), kIo / kComm (address in use, unreachable).
  static std::shared_ptr<World> join(const WorldOptions& options);

  int local_rank() const { return local_rank_; }
  // Between tensors on the device.
  BackendKind backend(at::Device device) const;

  // What meshes that name none have: the type that the backend that was asked for moves.
  std::string default_device_type() const;

  // Lets groups have their tensors on `device`, this rank's of its type. Every rank adds the same
  // types, before it makes such groups.
  void add_transport(at::Device device, Transport transport,
                     CollectiveOrder order = CollectiveOrder::kOnStream);
  // Whether there is one, of a type as "cuda": from the start, or since it was added.
  bool has_transport(const std::string& type) const;
  // This rank's device of a type: of CUDA's the one of its local rank. Opens the plug-in of the
  // type the first time. Error: kUnsupported, with what is missing.
  at::Device device(at::DeviceType type);

  // Local, any thread: the team of some ranks, this one among them, always the same. It keeps the
  // World.
  std::shared_ptr<Team> team(std::vector<int> ranks);

 private:
  World(const std::shared_ptr<Links>& links, int local_rank);
  void connect_control(bool compares_collectives);

  const std::shared_ptr<Links> links_;
  const int local_rank_;
  std::mutex mutex_;  // of the teams
  std::map<std::vector<int>, std::shared_ptr<Team>> teams_;
};

}  // namespace fsdp2
