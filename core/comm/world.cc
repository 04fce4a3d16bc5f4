#include "core/comm/world.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/comm/check/collective_check.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/place.h"
#include "core/comm/meet/rendezvous.h"
#include "core/comm/meet/way.h"
#include "core/comm/transport/fake_backend.h"
#include "core/comm/transport/gloo_backend.h"
#include "core/comm/transport/host_backend.h"
#include "core/comm/transport/staged_backend.h"
#include "core/comm/transport/thread_job.h"
#include "core/device/own_device.h"
#include "core/device/plugin.h"

namespace fsdp2 {

namespace {

constexpr std::chrono::milliseconds kAfterTheStore{1000};

BackendKind choose_backend(BackendKind asked, const Place& place) {
  switch (asked) {
    case BackendKind::kNccl:  // between devices; what the host decides by goes as with kAuto
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
    case BackendKind::kFake:
      return asked;
  }
  fail(Code::kInvalidArgument, "backend {}: no such number", static_cast<int>(asked));
}

// Through shared memory if all ranks of the group share some, else by Gloo.
c10::intrusive_ptr<c10d::Backend> connect_processes(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int rank, int size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& own_address,
                                                    bool try_memory) {
  if (try_memory) {
    if (auto segment = SharedSegment::open(*store, rank, size, timeout)) {
      return make_host_backend(std::move(segment), rank, size);
    }
    log(LogLevel::kDebug, "comm", "rank {} of a group of {}: no shared memory, using Gloo", rank,
        size);
  }
  return make_gloo_backend(store, rank, size, timeout, own_address);
}

void add_reach(Links& links, at::Device device, Transport transport, CollectiveOrder order) {
  const bool is_new =
      links.reaches.emplace(device.type(), Links::Reach{device, std::move(transport), order})
          .second;
  FSDP2_CHECK(is_new, Code::kWrongState, "groups of {} have a transport already", device.str());
}

void add_host(Links& links, Transport transport) {
  add_reach(links, at::kCPU, std::move(transport), CollectiveOrder::kOnHost);
}

c10::intrusive_ptr<c10d::Backend> connect_fake(const std::string& /*key*/, int rank, int size) {
  return make_fake_backend(rank, size);
}

void meet_nowhere(Links& links) {
  links.store = links.patient_store = c10::make_intrusive<c10d::HashStore>();
  links.failure = FailureNotice::local();
  add_host(links, connect_fake);
}

void meet_as_threads(Links& links, const Place& place) {
  const auto job = ThreadJob::join(place.where, place.rank, place.size, links.timeout);
  links.store = links.patient_store = job->store();
  links.failure = job->failure();
  if (links.backend == BackendKind::kThread) {
    add_host(links, [job](const std::string& key, int rank, int size) {
      return make_thread_backend(job->group(key, size), rank);
    });
  }
}

// Returns this machine's address for the others.
std::string meet_as_processes(Links& links, const Place& place) {
  MeetingPoint met = open_store(place, links.timeout);
  links.store = std::move(met.store);
  links.patient_store = patient(links.timeout, links.store);
  links.failure = FailureNotice::over_store(
      links.store, place.rank, place.size, links.timeout,
      place.launcher_hosts_store ? StoreKeeper::kLauncher : StoreKeeper::kRankZero);
  return met.own_address;
}

// What waits in the store gives up by itself, with the better message.
c10::intrusive_ptr<c10d::Store> own_store(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::string& key,
                                          std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout + kAfterTheStore;
  return patient_until(deadline, c10::make_intrusive<c10d::PrefixStore>(key, store));
}

// Ranks as threads that ask for Gloo, and whoever asks for it by name, get it.
void connect_over_store(Links& links, const std::string& own_address, bool try_memory) {
  add_host(links, [store = links.store, timeout = links.timeout, own_address, try_memory](
                      const std::string& key, int rank, int size) {
    return connect_processes(own_store(store, key, timeout), rank, size, timeout, own_address,
                             try_memory);
  });
}

void meet(Links& links, const WorldOptions& options, const Place& place) {
  if (place.meeting == Meeting::kNowhere || place.meeting == Meeting::kFake) {
    meet_nowhere(links);
    if (place.meeting == Meeting::kFake) {
      add_reach(links, at::kMeta, connect_fake, CollectiveOrder::kOnHost);
    }
    return;
  }
  std::string own_address = kLoopback;
  if (place.meeting == Meeting::kThreads) {
    meet_as_threads(links, place);
  } else {
    own_address = meet_as_processes(links, place);
  }
  if (links.reaches.empty()) {
    const bool try_memory =
        options.backend == BackendKind::kAuto || options.backend == BackendKind::kNccl;
    connect_over_store(links, own_address, try_memory);
  }
}

void connect_devices(Links& links, at::DeviceType type, int local_rank) {
  const DevicePlugin& plugin = open_device_plugin(type);
  // NCCL refuses ranks that share a GPU; staged through the host they may.
  const at::Device device = own_device(
      type, {plugin.device_count(), process_environment()("CUDA_VISIBLE_DEVICES")}, local_rank,
      /*may_share=*/links.stages_devices());
  if (links.stages_devices()) {
    const Transport host = links.reach(at::kCPU).connect;
    add_reach(
        links, device,
        [host](const std::string& key, int rank, int size) {
          return make_staged_backend(host(key, rank, size));
        },
        CollectiveOrder::kOnHost);
    return;
  }
  add_reach(
      links, device,
      [&plugin, device, store = links.store, timeout = links.timeout](const std::string& key,
                                                                      int rank, int size) {
        return plugin.connect(own_store(store, key, timeout), rank, size, device, timeout);
      },
      CollectiveOrder::kOnStream);
}

// A rank that cannot read what is asked for tells the others, which wait for it.
bool asks_for_checks(const Links& links) {
  try {
    return wants_detailed_checks();
  } catch (const Error& error) {
    links.failure->publish(fmt::format("rank {}: {}", links.rank, error.message()));
    throw;
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
  links->asked = options.backend;
  links->backend = choose_backend(options.backend, place);
  links->timeout = options.timeout;
  meet(*links, options, place);
  links->compares_collectives =
      place.size > 1 && links->backend != BackendKind::kFake && asks_for_checks(*links);
  std::shared_ptr<World> world(new World(links, place.local_rank));
  world->connect_control(links->compares_collectives);
  return world;
}

World::World(const std::shared_ptr<Links>& links, int local_rank)
    : Team(this, links, all_ranks(links->size)), links_(links), local_rank_(local_rank) {}

// All ranks compare their collectives or none: one that does waits for the word of the others.
void World::connect_control(bool compares_collectives) {
  const std::string key = "detail";
  const bool has_others = size() > 1 && !is_fake();
  if (has_others) {
    store().add(key, compares_collectives ? 1 : 0);
  }
  control().connect();  // all have come
  const int64_t count = has_others ? store().add(key, 0) : 0;
  FSDP2_CHECK(count == 0 || count == size(), Code::kInvalidArgument,
              "FSDP2_DEBUG is detail on {} of {} ranks: set it on all of them, or on none", count,
              size());
}

void World::add_transport(at::Device device, Transport transport, CollectiveOrder order) {
  add_reach(*links_, device, std::move(transport), order);
}

BackendKind World::backend(at::Device device) const {
  const bool by_host = device.is_cpu() || links_->stages_devices() || is_fake();
  return by_host ? links_->backend : BackendKind::kNccl;
}

std::string World::default_device_type() const {
  return links_->asked == BackendKind::kNccl ? "cuda" : "cpu";
}

bool World::has_transport(const std::string& type) const {
  return std::any_of(links_->reaches.begin(), links_->reaches.end(), [&](const auto& reach) {
    return c10::DeviceTypeName(reach.first, /*lower_case=*/true) == type;
  });
}

at::Device World::device(at::DeviceType type) {
  if (links_->reaches.count(type) == 0) {
    connect_devices(*links_, type, local_rank_);
  }
  return links_->reach(type).device;
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
