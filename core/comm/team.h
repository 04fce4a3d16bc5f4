// The ranks that make collective calls together: all ranks of a job, which are its World, or those
// of a mesh that is a slice of it.
//
// A team numbers its ranks from 0, in the order of the job, and counts by itself: what two teams do
// at the same time, in whatever order, does not meet. Some ranks are one team, however many meshes
// they make. A failure in a team ends it, and every team that shares a rank with it; other teams go
// on (failure_notice.h).
//
// One thread at a time may use the teams of one World.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
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

// Connects the ranks of a group; `key` is its own, `rank` counts within it.
using Transport =
    std::function<c10::intrusive_ptr<c10d::Backend>(const std::string& key, int rank, int size)>;

// How the ranks of a job reach each other. Groups keep it, and may outlive the World.
struct Links {
  int rank = 0;  // of this process or thread, in the job
  int size = 1;
  BackendKind asked = BackendKind::kAuto;
  BackendKind backend = BackendKind::kGloo;  // of the host
  std::chrono::milliseconds timeout{0};
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Store> patient_store;  // store, or a view of it if processes share it
  std::shared_ptr<FailureNotice> failure;         // of all ranks
  bool compares_collectives = false;              // collective_check.h

  struct Reach {
    at::Device device;  // of this rank
    Transport connect;
    CollectiveOrder order;
  };
  std::map<at::DeviceType, Reach> reaches;
  // Whether tensors on other devices go through the host's transport.
  bool stages_devices() const {
    return asked != BackendKind::kNccl &&
           (asked != BackendKind::kAuto || backend == BackendKind::kThread);
  }
  // kUnsupported if no transport connects such devices.
  const Reach& reach(at::DeviceType type) const;
};

class World;

class Team {
 public:
  ~Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return rank_; }  // this one's, within the team
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // ranks in the job, ascending
  // A rank's number in the job, by which messages name it.
  int rank_in_job(int rank) const { return members_.at(rank); }
  int own_rank_in_job() const { return links_->rank; }

  World& world() const { return *world_; }
  bool is_whole_job() const { return size() == links_->size; }
  bool is_fake() const { return links_->backend == BackendKind::kFake; }
  bool compares_collectives() const { return links_->compares_collectives; }
  std::chrono::milliseconds timeout() const { return links_->timeout; }
  // The names in it are this team's own. Any thread. A call that is not answered within the
  // time-out throws kTimeout (patience.h).
  c10d::Store& store() { return *store_; }
  FailureNotice& failure() { return *failure_; }
  const std::shared_ptr<FailureNotice>& shared_failure() const { return failure_; }
  // Tells all ranks, this one included, that this one has failed: "rank 1: <message>".
  void publish_failure(const std::string& message);

  // The group of all ranks, for control traffic (agreement, scalars), on the host.
  Comm& control() { return *control_; }
  // The group of all ranks, in their order, on the host. Its gathers use the connection of
  // control().
  const std::shared_ptr<const Group>& everyone() const { return everyone_; }

  // Every rank of the team makes these calls with the same names in the same order, and passes the
  // members of its own group (ranks in the job), itself among them, and the device of its own that
  // World::device gave. make_comm is collective over the group, and connects it.
  std::shared_ptr<Comm> make_comm(const std::string& name, const std::vector<int>& members,
                                  at::Device device);
  std::shared_ptr<const Group> make_group(const std::string& name, const std::vector<int>& members,
                                          at::Device device);

  // Local, any thread: the team of some ranks of the job, this one among them. It keeps the World.
  std::shared_ptr<Team> of(std::vector<int> ranks);

 protected:
  Team(World* world, std::shared_ptr<const Links> links, std::vector<int> members);

 private:
  friend class World;
  std::shared_ptr<Comm> describe_comm(const std::string& name, const std::vector<int>& members,
                                      at::Device device);

  World* const world_;
  const std::shared_ptr<const Links> links_;
  const std::vector<int> members_;
  const int rank_;
  const std::string key_;  // before the names that it gives in the store of the job
  int groups_made_ = 0;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<FailureNotice> failure_;
  std::shared_ptr<Comm> control_;
  std::shared_ptr<const Group> everyone_;
};

}  // namespace fsdp2
