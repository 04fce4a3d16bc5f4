#include "core/comm/world.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/place.h"
#include "core/comm/meet/rendezvous.h"
#include "core/comm/transport/fake_backend.h"
#include "core/comm/transport/gloo_backend.h"
#include "core/comm/transport/host_backend.h"
#include "core/comm/transport/thread_job.h"

namespace fsdp2 {

namespace {

constexpr std::chrono::milliseconds kAfterTheStore{1000};

BackendKind choose_backend(BackendKind asked, const Place& place) {
  switch (asked) {
    case BackendKind::kAuto:
      return place.meeting == Meeting::kThreads ? BackendKind::kThread
             : place.meeting == Meeting::kFake  ? BackendKind::kFake
                                                : BackendKind::kGloo;
    case BackendKind::kGloo:
      return asked;
    case BackendKind::kThread:
      FSDP2_CHECK(place.meeting == Meeting::kThreads || place.size == 1, Code::kInvalidArgument,
                  "backend thread: its ranks meet at thread://name, nowhere else");
      return asked;
    case BackendKind::kNccl:
      fail(Code::kUnsupported, "backend nccl: needs libfsdp2_cuda.so, which this build lacks");
    case BackendKind::kFake:
      return asked;
  }
  fail(Code::kInvalidArgument, "backend {}: no such number", static_cast<int>(asked));
}

void check_members(const std::string& name, const std::vector<int>& members, int rank, int size) {
  std::vector<int> sorted = members;
  std::sort(sorted.begin(), sorted.end());
  const bool valid = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
                     std::binary_search(sorted.begin(), sorted.end(), rank) &&
                     sorted.front() >= 0 && sorted.back() < size;
  FSDP2_CHECK(valid, Code::kInvalidArgument,
              "group {}: members ({}) must be different ranks of {} and hold this one, {}", name,
              fmt::join(members, ", "), size, rank);
}

// Other ranks learn why this one does not come.
c10::intrusive_ptr<c10d::Backend> connect_or_tell(const std::string& name, int rank,
                                                  FailureNotice& failure,
                                                  const Channel::Connect& connect) {
  try {
    return connect();
  } catch (...) {
    const Error error = current_exception_as_error();
    const std::string text =
        fmt::format("group {} cannot be made on rank {}: {}", name, rank, error.message());
    failure.publish(text);
    const bool own = error.code() == Code::kTimeout || error.code() == Code::kPeerFailed;
    throw Error(own ? error.code() : Code::kComm, text);
  }
}

// Through shared memory if all ranks of the group share some, else by Gloo.
c10::intrusive_ptr<c10d::Backend> connect_processes(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    bool one_machine, bool try_memory) {
  if (try_memory) {
    if (auto segment = SharedSegment::open(*store, rank, size, timeout)) {
      return make_host_backend(std::move(segment), rank, size);
    }
    log(LogLevel::kDebug, "comm", "rank {} of a group of {}: no shared memory, using Gloo", rank,
        size);
  }
  return make_gloo_backend(store, rank, size, timeout, one_machine);
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
  world->meet(options, place);
  std::vector<int> everyone(place.size);
  std::iota(everyone.begin(), everyone.end(), 0);
  world->control_ = world->make_comm("control", everyone, at::kCPU);
  auto gather = world->control_->share("world/gather");
  auto reduce = world->describe_comm("world/reduce", everyone, at::kCPU);
  world->everyone_ =
      std::make_shared<Group>(Group{std::move(everyone), gather, std::move(reduce), gather});
  return world;
}

void World::meet(const WorldOptions& options, const Place& place) {
  if (place.meeting == Meeting::kNowhere || place.meeting == Meeting::kFake) {
    store_ = patient_store_ = c10::make_intrusive<c10d::HashStore>();
    failure_ = FailureNotice::local();
    add_transport(at::kCPU, [](const std::string& /*key*/, int rank, int size) {
      return make_fake_backend(rank, size);
    });
    return;
  }
  if (place.meeting == Meeting::kThreads) {
    const auto job = ThreadJob::join(place.where, place.rank, place.size, options.timeout);
    store_ = patient_store_ = job->store();
    failure_ = job->failure();
    if (backend_ == BackendKind::kThread) {
      add_transport(at::kCPU, [job](const std::string& key, int rank, int size) {
        return make_thread_backend(job->group(key, size), rank);
      });
    }
  } else {
    store_ = open_store(place, options.timeout);
    patient_store_ = patient(options.timeout, store_);
    failure_ = FailureNotice::over_store(
        store_, place.rank, place.size,
        place.launcher_hosts_store ? StoreKeeper::kLauncher : StoreKeeper::kRankZero);
  }
  if (transports_.empty()) {
    // Ranks as threads that ask for Gloo, and whoever asks for it by name, get it.
    const bool try_memory = options.backend == BackendKind::kAuto;
    add_transport(at::kCPU, [store = store_, timeout = options.timeout,
                             one_machine = place.one_machine(),
                             try_memory](const std::string& key, int rank, int size) {
      // What waits in the store gives up by itself, with the better message.
      const auto deadline = std::chrono::steady_clock::now() + timeout + kAfterTheStore;
      const auto own = patient_until(deadline, c10::make_intrusive<c10d::PrefixStore>(key, store));
      return connect_processes(own, rank, size, timeout, one_machine, try_memory);
    });
  }
}

void World::add_transport(at::Device device, Transport transport) {
  FSDP2_CHECK(transports_.count(device.type()) == 0, Code::kWrongState,
              "groups of {} have a transport already", device.str());
  transports_.emplace(device.type(), Reach{device, std::move(transport)});
}

std::optional<at::Device> World::find_device(at::DeviceType type) const {
  const auto found = transports_.find(type);
  return found == transports_.end() ? std::nullopt : std::optional(found->second.device);
}

const World::Reach& World::reach(at::DeviceType type) const {
  const auto found = transports_.find(type);
  FSDP2_CHECK(found != transports_.end(), Code::kUnsupported,
              "a group of {}: no transport between such devices has been added",
              c10::DeviceTypeName(type, /*lower_case=*/true));
  return found->second;
}

void World::publish_failure(const std::string& message) {
  failure_->publish(fmt::format("rank {}: {}", rank_, message));
}

std::shared_ptr<Comm> World::make_comm(const std::string& name, const std::vector<int>& members,
                                       at::Device device) {
  std::shared_ptr<Comm> comm = describe_comm(name, members, device);
  comm->connect();
  return comm;
}

std::shared_ptr<const Group> World::make_group(const std::string& name,
                                               const std::vector<int>& members, at::Device device) {
  const auto gather = describe_comm(name + "/gather", members, device);
  const auto reduce = describe_comm(name + "/reduce", members, device);
  const auto control =
      device.is_cpu() ? gather : describe_comm(name + "/control", members, at::kCPU);
  return std::make_shared<Group>(Group{members, gather, reduce, control});
}

std::shared_ptr<Comm> World::describe_comm(const std::string& name, const std::vector<int>& members,
                                           at::Device device) {
  check_members(name, members, rank_, size_);
  const Reach& transport = reach(device.type());
  const auto index = std::find(members.begin(), members.end(), rank_) - members.begin();
  const Comm::Identity identity{name, static_cast<int>(index), members, transport.device};
  // All ranks count alike. Groups made by the same call are told apart by their first member.
  const std::string key = fmt::format("group{}/{}/{}", groups_made_++, name, members.front());
  std::shared_ptr<Channel> channel;
  if (members.size() > 1) {
    // No reference to the World here, which the groups may outlive.
    auto meet = [key, members, rank = rank_, store = store_, failure = failure_,
                 timeout = timeout_] {
      c10d::PrefixStore arrivals(key,
                                 patient_until(std::chrono::steady_clock::now() + timeout, store));
      meet_at(arrivals, rank, members, timeout, [&] {
        FSDP2_CHECK(!failure->failed(), Code::kPeerFailed, "a rank failed: {}", failure->text());
      });
    };
    auto connect = [key, identity, meet, alone = is_fake(), connect = transport.connect] {
      if (!alone) {  // whoever connects to a rank that has not come would wait for long
        meet();
      }
      return connect(key, identity.rank, static_cast<int>(identity.members.size()));
    };
    channel = std::make_shared<Channel>(
        [name, connect, rank = rank_, failure = failure_] {
          return connect_or_tell(name, rank, *failure, connect);
        },
        failure_);
  }
  return std::make_shared<Comm>(identity, std::move(channel), failure_, timeout_);
}

}  // namespace fsdp2
