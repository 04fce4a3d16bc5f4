#include "core/comm/world.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

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

void add_reach(Links& links, at::Device device, Transport transport) {
  const bool is_new =
      links.reaches.emplace(device.type(), Links::Reach{device, std::move(transport)}).second;
  FSDP2_CHECK(is_new, Code::kWrongState, "groups of {} have a transport already", device.str());
}

void meet_nowhere(Links& links) {
  links.store = links.patient_store = c10::make_intrusive<c10d::HashStore>();
  links.failure = FailureNotice::local();
  add_reach(links, at::kCPU, [](const std::string& /*key*/, int rank, int size) {
    return make_fake_backend(rank, size);
  });
}

void meet_as_threads(Links& links, const Place& place) {
  const auto job = ThreadJob::join(place.where, place.rank, place.size, links.timeout);
  links.store = links.patient_store = job->store();
  links.failure = job->failure();
  if (links.backend == BackendKind::kThread) {
    add_reach(links, at::kCPU, [job](const std::string& key, int rank, int size) {
      return make_thread_backend(job->group(key, size), rank);
    });
  }
}

void meet_as_processes(Links& links, const Place& place) {
  links.store = open_store(place, links.timeout);
  links.patient_store = patient(links.timeout, links.store);
  links.failure = FailureNotice::over_store(
      links.store, place.rank, place.size,
      place.launcher_hosts_store ? StoreKeeper::kLauncher : StoreKeeper::kRankZero);
}

// Ranks as threads that ask for Gloo, and whoever asks for it by name, get it.
void connect_over_store(Links& links, const Place& place, bool try_memory) {
  add_reach(links, at::kCPU,
            [store = links.store, timeout = links.timeout, one_machine = place.one_machine(),
             try_memory](const std::string& key, int rank, int size) {
              // What waits in the store gives up by itself, with the better message.
              const auto deadline = std::chrono::steady_clock::now() + timeout + kAfterTheStore;
              const auto own =
                  patient_until(deadline, c10::make_intrusive<c10d::PrefixStore>(key, store));
              return connect_processes(own, rank, size, timeout, one_machine, try_memory);
            });
}

void meet(Links& links, const WorldOptions& options, const Place& place) {
  if (place.meeting == Meeting::kNowhere || place.meeting == Meeting::kFake) {
    meet_nowhere(links);
    return;
  }
  place.meeting == Meeting::kThreads ? meet_as_threads(links, place)
                                     : meet_as_processes(links, place);
  if (links.reaches.empty()) {
    connect_over_store(links, place, options.backend == BackendKind::kAuto);
  }
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::shared_ptr<World> World::join(const WorldOptions& options) {
  FSDP2_CHECK(options.timeout.count() > 0, Code::kInvalidArgument,
              "timeout is {} ms: expected more than 0", options.timeout.count());
  const Place place = find_place(options, process_environment());
  const auto links = std::make_shared<Links>();
  links->rank = place.rank;
  links->size = place.size;
  links->backend = choose_backend(options.backend, place);
  links->timeout = options.timeout;
  meet(*links, options, place);
  std::shared_ptr<World> world(new World(links, place.local_rank));
  world->control().connect();
  return world;
}

World::World(const std::shared_ptr<Links>& links, int local_rank)
    : Team(this, links, all_ranks(links->size)), links_(links), local_rank_(local_rank) {}

void World::add_transport(at::Device device, Transport transport) {
  add_reach(*links_, device, std::move(transport));
}

std::optional<at::Device> World::find_device(at::DeviceType type) const {
  const auto found = links_->reaches.find(type);
  return found == links_->reaches.end() ? std::nullopt : std::optional(found->second.device);
}

std::shared_ptr<Team> World::team(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks == members()) {
    return shared_from_this();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Team>& team = teams_[ranks];
  if (team == nullptr) {
    team.reset(new Team(this, links_, ranks));
  }
  return {shared_from_this(), team.get()};
}

}  // namespace fsdp2
