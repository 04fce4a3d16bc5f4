#include "core/comm/team.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/text_hash.h"
#include "core/comm/check/collective_check.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/rendezvous.h"
#include "core/comm/world.h"

namespace fsdp2 {

namespace {

constexpr std::chrono::milliseconds kAfterTheTransport{2000};  // whose own errors say more

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

int index_of(int rank, const std::vector<int>& members) {
  return static_cast<int>(std::find(members.begin(), members.end(), rank) - members.begin());
}

c10::intrusive_ptr<c10d::Store> store_of(const Links& links, const std::string& key) {
  if (key.empty()) {
    return links.patient_store;
  }
  return c10::make_intrusive<c10d::PrefixStore>(key, links.patient_store);
}

// The same on all its ranks, whatever each of them has made before, and no other team's. Empty for
// all ranks of the job.
std::string key_of(const std::vector<int>& members, int job_size) {
  if (static_cast<int>(members.size()) == job_size) {
    return "";
  }
  const uint64_t hash = hash_of_text(fmt::format("{}", fmt::join(members, ",")));
  return fmt::format("team/{}-{}-{:x}/", members.front(), members.size(), hash);
}

// "control of ranks 2, 3": a slice's groups say in messages whose they are.
std::string name_in(const std::vector<int>& members, bool all, const char* name) {
  constexpr size_t kRanksInName = 8;
  std::vector<std::string> ranks;
  for (const int rank : members) {
    ranks.push_back(std::to_string(rank));
  }
  return all ? name : fmt::format("{} of ranks {}", name, list_some(ranks, kRanksInName));
}

// Other ranks learn why this one does not come.
c10::intrusive_ptr<c10d::Backend> connect_or_tell(
    const std::string& name, int rank, FailureNotice& failure,
    const std::function<c10::intrusive_ptr<c10d::Backend>()>& connect) {
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

void check_healthy(const FailureNotice& failure) {
  FSDP2_CHECK(!failure.failed(), Code::kPeerFailed, "a rank failed: {}", failure.text());
}

// Waits for all members: whoever connects to a rank that has not come would wait for long.
void meet_members(const std::string& key, const std::vector<int>& members, const Links& links,
                  const FailureNotice& failure) {
  c10d::PrefixStore arrivals(
      key, patient_until(std::chrono::steady_clock::now() + links.timeout, links.store));
  meet_at(arrivals, links.rank, members, links.timeout, [&] { check_healthy(failure); });
}

// Gloo waits five times its time-out for a rank that cannot connect to it, and hears of no failure
// meanwhile, so it gets a thread of its own.
c10::intrusive_ptr<c10d::Backend> connect_by_gloo(
    const std::function<c10::intrusive_ptr<c10d::Backend>()>& connect, const Links& links,
    const FailureNotice& failure) {
  const auto deadline = std::chrono::steady_clock::now() + links.timeout + kAfterTheTransport;
  const auto backend = answer_until(deadline, connect, [&] { check_healthy(failure); });
  FSDP2_CHECK(backend.has_value(), Code::kTimeout,
              "not all of its ranks could connect within {:.1f} s: does a firewall between their "
              "machines let all TCP pass?",
              std::chrono::duration<double>(links.timeout).count());
  return *backend;
}

}  // namespace

const Links::Reach& Links::reach(at::DeviceType type) const {
  const auto found = reaches.find(type);
  FSDP2_CHECK(found != reaches.end(), Code::kUnsupported,
              "a group of {}: no transport between such devices has been added",
              c10::DeviceTypeName(type, /*lower_case=*/true));
  return found->second;
}

Team::Team(World* world, std::shared_ptr<const Links> links, std::vector<int> members)
    : world_(world),
      links_(std::move(links)),
      members_(std::move(members)),
      rank_(index_of(links_->rank, members_)),
      key_(key_of(members_, links_->size)),
      store_(store_of(*links_, key_)),
      failure_(key_.empty() ? links_->failure : links_->failure->of(members_)) {
  const auto name = [&](const char* what) { return name_in(members_, key_.empty(), what); };
  control_ = describe_comm(name("control"), members_, at::kCPU);
  const auto gather = control_->share(name("world/gather"));
  auto reduce = describe_comm(name("world/reduce"), members_, at::kCPU);
  everyone_ = std::make_shared<Group>(Group{members_, gather, std::move(reduce), gather});
}

void Team::publish_failure(const std::string& message) {
  failure_->publish(fmt::format("rank {}: {}", links_->rank, message));
}

std::shared_ptr<Comm> Team::make_comm(const std::string& name, const std::vector<int>& members,
                                      at::Device device) {
  std::shared_ptr<Comm> comm = describe_comm(name, members, device);
  comm->connect();
  return comm;
}

std::shared_ptr<const Group> Team::make_group(const std::string& name,
                                              const std::vector<int>& members, at::Device device) {
  const auto gather = describe_comm(name + "/gather", members, device);
  const auto reduce = describe_comm(name + "/reduce", members, device);
  const auto control =
      device.is_cpu() ? gather : describe_comm(name + "/control", members, at::kCPU);
  return std::make_shared<Group>(Group{members, gather, reduce, control});
}

std::shared_ptr<Comm> Team::describe_comm(const std::string& name, const std::vector<int>& members,
                                          at::Device device) {
  check_members(name, members, links_->rank, links_->size);
  const Links::Reach& reach = links_->reach(device.type());
  const Comm::Identity identity{name,        index_of(links_->rank, members),
                                members,     reach.device,
                                reach.order, links_->backend == BackendKind::kFake};
  // All ranks count alike. Groups made by the same call are told apart by their first member.
  const std::string key =
      fmt::format("{}group{}/{}/{}", key_, groups_made_++, name, members.front());
  std::shared_ptr<Channel> channel;
  if (members.size() > 1) {
    // No reference to the World here, which the groups may outlive.
    const auto connect = [key, identity, links = links_,
                          transport = reach.connect](FailureNotice& failure) {
      return connect_or_tell(identity.name, links->rank, failure, [&] {
        if (links->backend != BackendKind::kFake) {
          meet_members(key, identity.members, *links, failure);
        }
        const auto connect_transport = [transport, key, rank = identity.rank,
                                        size = static_cast<int>(identity.members.size())] {
          return transport(key, rank, size);
        };
        const bool by_gloo =
            links->backend == BackendKind::kGloo && identity.order == CollectiveOrder::kOnHost;
        return by_gloo ? connect_by_gloo(connect_transport, *links, failure) : connect_transport();
      });
    };
    auto check =
        links_->compares_collectives
            ? std::make_shared<CollectiveCheck>(links_->patient_store, key, identity.rank, members)
            : nullptr;
    channel = std::make_shared<Channel>(connect, failure_, std::move(check));
  }
  return std::make_shared<Comm>(identity, std::move(channel), failure_, links_->timeout);
}

std::shared_ptr<Team> Team::of(std::vector<int> ranks) { return world_->team(std::move(ranks)); }

}  // namespace fsdp2
