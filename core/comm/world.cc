#include "core/comm/world.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/comm/gloo_backend.h"
#include "core/comm/place.h"
#include "core/comm/rendezvous.h"
#include "core/comm/thread_job.h"

namespace fsdp2 {

namespace {

BackendKind choose_backend(BackendKind asked, const Place& place) {
  switch (asked) {
    case BackendKind::kAuto:
      return place.meeting == Meeting::kThreads ? BackendKind::kThread : BackendKind::kGloo;
    case BackendKind::kGloo:
      return asked;
    case BackendKind::kThread:
      FSDP2_CHECK(place.meeting == Meeting::kThreads || place.size == 1, Code::kInvalidArgument,
                  "backend thread: its ranks meet at thread://name, nowhere else");
      return asked;
    case BackendKind::kNccl:
      fail(Code::kUnsupported, "backend nccl: needs libfsdp2_cuda.so, which this build lacks");
    case BackendKind::kFake:
      fail(Code::kUnsupported, "backend fake: this build lacks it");
  }
  fail(Code::kInvalidArgument, "backend {}: no such number", static_cast<int>(asked));
}

void check_members(const std::string& name, const std::vector<int>& members, int rank, int size) {
  const std::set<int> unique(members.begin(), members.end());
  const bool valid = unique.size() == members.size() && unique.count(rank) == 1 &&
                     *unique.begin() >= 0 && *unique.rbegin() < size;
  FSDP2_CHECK(valid, Code::kInvalidArgument,
              "group {}: members ({}) must be different ranks of {} and hold this one, {}", name,
              fmt::join(members, ", "), size, rank);
}

}  // namespace

std::shared_ptr<World> World::join(const WorldOptions& options) {
  FSDP2_CHECK(options.timeout.count() > 0, Code::kInvalidArgument,
              "timeout is {} ms: expected more than 0", options.timeout.count());
  const Place place = find_place(options, process_environment());
  std::shared_ptr<World> world(new World());
  world->rank_ = place.rank;
  world->size_ = place.size;
  world->local_rank_ = place.local_rank;
  world->backend_ = choose_backend(options.backend, place);
  world->timeout_ = options.timeout;
  if (place.meeting == Meeting::kNowhere) {
    world->store_ = c10::make_intrusive<c10d::HashStore>();
    world->failure_ = FailureNotice::local();
  } else if (place.meeting == Meeting::kThreads) {
    const auto job = ThreadJob::join(place.where, place.rank, place.size, options.timeout);
    world->store_ = job->store();
    world->failure_ = job->failure();
    if (world->backend_ == BackendKind::kThread) {
      world->connect_ = [job](const std::string& key, int rank, int size) {
        return make_thread_backend(job->group(key, size), rank);
      };
    }
  } else {
    world->store_ = open_store(place, options.timeout);
    world->failure_ = FailureNotice::over_store(world->store_, place.rank, place.size);
  }
  if (!world->connect_) {
    // No reference to the World here, which the groups may outlive.
    world->connect_ = [store = world->store_, timeout = options.timeout,
                       one_machine = place.one_machine()](const std::string& key, int rank,
                                                          int size) {
      return make_gloo_backend(c10::make_intrusive<c10d::PrefixStore>(key, store), rank, size,
                               timeout, one_machine);
    };
  }
  std::vector<int> everyone(place.size);
  std::iota(everyone.begin(), everyone.end(), 0);
  world->control_ = world->make_comm("control", everyone);
  return world;
}

std::shared_ptr<Comm> World::make_comm(const std::string& name, const std::vector<int>& members) {
  check_members(name, members, rank_, size_);
  // All ranks count alike. Groups made by the same call are told apart by their first member.
  const std::string key = fmt::format("group{}/{}/{}", groups_made_++, name, members.front());
  const auto index = std::find(members.begin(), members.end(), rank_) - members.begin();
  Comm::Identity identity{name, static_cast<int>(index), members};
  const int size = static_cast<int>(members.size());
  c10::intrusive_ptr<c10d::Backend> backend;
  if (size > 1) {
    try {
      // Whoever connects to a rank that has not come or has failed would wait for long.
      c10d::PrefixStore arrivals(key, store_);
      meet_at(arrivals, rank_, members, timeout_, [this] {
        FSDP2_CHECK(!failure_->failed(), Code::kPeerFailed, "a rank failed: {}", failure_->text());
      });
      backend = connect_(key, identity.rank, size);
    } catch (...) {
      const Error error = current_exception_as_error();
      const std::string text =
          fmt::format("group {} cannot be made on rank {}: {}", name, rank_, error.message());
      failure_->publish(text);
      const bool own = error.code() == Code::kTimeout || error.code() == Code::kPeerFailed;
      throw Error(own ? error.code() : Code::kComm, text);
    }
  }
  return std::make_shared<Comm>(std::move(identity), std::move(backend), failure_, timeout_);
}

}  // namespace fsdp2
