#include "core/comm/meet/rendezvous.h"

#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/comm/meet/meeting_file.h"
#include "core/comm/meet/own_address.h"
#include "core/comm/meet/patience.h"
#include "core/comm/meet/tcp_store.h"
#include "core/comm/meet/versions.h"
#include "core/comm/meet/way.h"

namespace fsdp2 {

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// One that begins when it is made.
struct Wait {
  explicit Wait(milliseconds length) : whole(length), deadline(Clock::now() + length) {}

  milliseconds left() const {
    return std::max(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()),
                    milliseconds(1));
  }
  bool is_over() const { return Clock::now() >= deadline; }

  const milliseconds whole;
  const Clock::time_point deadline;
};

constexpr milliseconds kRetry{10};  // between two looks at what is not there yet
// For the others to read why one has given up. Those that are there may stand still for seconds on
// a busy machine; those that may come yet are waited for in any case.
constexpr milliseconds kReading{4000};
constexpr milliseconds kComing{1000};

double seconds(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

std::string here(int rank) { return fmt::format("here/{}", rank); }
std::string arrivals(int rank) { return fmt::format("arrivals/{}", rank); }

// What "all" holds once nobody waits any more: this, or the text of the rank that has given up.
constexpr char kComplete[] = "1";

std::string describe_missing(c10d::Store& store, const std::vector<int>& ranks,
                             milliseconds timeout) {
  std::vector<int> missing;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(missing),
               [&](int rank) { return !store.check({here(rank)}); });
  const size_t absent = missing.size();
  missing.resize(std::min<size_t>(absent, 8));
  return fmt::format("{} of {} ranks came within {:.1f} s, missing: {}{}", ranks.size() - absent,
                     ranks.size(), seconds(timeout), fmt::join(missing, ", "),
                     absent > 8 ? ", ..." : "");
}

// Empty, or what is wrong: this rank counts others than the first that came.
std::string difference_in_size(c10d::Store& store, int rank, size_t size) {
  const std::string own = std::to_string(size);
  const std::string first = store.compareSet("size", std::string(), own);
  return first == own ? ""
                      : fmt::format(
                            "rank {} says that there are {} ranks, another one says {}: is "
                            "WORLD_SIZE the same for all of them?",
                            rank, own, first);
}

// One that runs these versions, of those that are here.
int rank_that_runs(c10d::Store& store, const std::vector<int>& ranks, const std::string& versions) {
  return *std::find_if(ranks.begin(), ranks.end() - 1, [&](int rank) {
    return store.check({here(rank)}) && store.get_to_str(here(rank)) == versions;
  });
}

// The same of the versions. A rank of a libfsdp2 that does not say what it runs is not compared.
std::string difference_in_versions(c10d::Store& store, int rank, const std::vector<int>& ranks,
                                   const std::string& own) {
  const std::string first = store.compareSet("versions", std::string(), own);
  return first == own ? ""
                      : fmt::format(
                            "rank {} runs {}, rank {} runs {}: install the same versions for all "
                            "ranks",
                            rank, own, rank_that_runs(store, ranks, first), first);
}

// All who wait then give up with the same text, unless the last rank has come meanwhile.
void give_up(c10d::Store& store, const std::vector<int>& ranks, milliseconds timeout) {
  store.compareSet("all", std::string(), describe_missing(store, ranks, timeout));
}

// Rank 0 may keep the store, and end on what it throws: not before the others have read why, or
// come to it if how many they are is not known.
void wait_for_readers(c10d::Store& store, bool more_may_come) {
  const auto start = Clock::now();
  const auto is_over = [&](milliseconds time) { return Clock::now() >= start + time; };
  while (!is_over(kReading) &&
         ((more_may_come && !is_over(kComing)) || store.add("read", 0) < store.add("count", 0))) {
    std::this_thread::sleep_for(kRetry);
  }
}

// See meet_at. The wait may have begun before.
void meet_during(const Wait& wait, c10d::Store& store, int rank, const std::vector<int>& ranks,
                 const std::function<void()>& look, const std::string& versions) {
  store.set(here(rank), versions.empty() ? "1" : versions);
  std::string difference =
      versions.empty() ? "" : difference_in_versions(store, rank, ranks, versions);
  if (difference.empty()) {
    difference = difference_in_size(store, rank, ranks.size());
  }
  if (!difference.empty()) {
    store.compareSet("differ", std::string(), difference);
    store.compareSet("all", std::string(), difference);
  }
  if (store.add("count", 1) == static_cast<int64_t>(ranks.size())) {
    store.compareSet("all", std::string(), kComplete);
  }
  // Not Store::wait: TCPStore's cannot be left early, and warns whenever its time is over.
  for (milliseconds pause{1}; !store.check({"all"}); pause = std::min(2 * pause, kRetry)) {
    if (wait.is_over()) {
      give_up(store, ranks, wait.whole);
      continue;
    }
    if (look) {
      look();
    }
    std::this_thread::sleep_for(pause);
  }
  const std::string outcome = difference.empty() ? store.get_to_str("all") : difference;
  if (outcome != kComplete) {
    const bool differ =
        !difference.empty() || (store.check({"differ"}) && store.get_to_str("differ") == outcome);
    store.add("read", 1);
    if (rank == 0) {
      wait_for_readers(store, differ);
    }
    fail(differ ? Code::kInvalidArgument : Code::kTimeout, "{}", outcome);
  }
}

// One that has come to the store more often than this rank has. None if the store has ended, as
// that of a rank 0 does which has given up.
std::optional<int> rank_that_came_twice(c10d::Store& store, const std::vector<int>& ranks,
                                        int64_t arrival) {
  try {
    const auto twice = std::find_if(ranks.begin(), ranks.end(), [&](int rank) {
      return store.add(arrivals(rank), 0) > arrival;
    });
    return twice == ranks.end() ? std::nullopt : std::optional(*twice);
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// Thrown while ranks meet at a store that is that of an earlier rank 0, or has become so.
struct Outdated {};

// Waits until all ranks have come to the store, to which this one has found the way. What it
// returns of the store is the part that is this world's. Throws Outdated if the store ends and is
// that of an earlier rank 0, whose world has had a rank of this number, or ends before this one has
// come to it.
MeetingPoint meet_all_at(StorePtr store, const Way& way, const Place& place, const Wait& wait,
                         const std::function<void()>& look = {}) {
  if (!place.key_prefix.empty()) {
    store = c10::make_intrusive<c10d::PrefixStore>(place.key_prefix, store);
  }
  std::vector<int> ranks(place.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  const StorePtr patient = patient_until(wait.deadline, store);
  int64_t arrival = 0;
  try {
    // A store that outlives a world (torchrun's agent keeps one) can serve the next: every rank has
    // arrived equally often by then.
    arrival = patient->add(arrivals(place.rank), 1);
    const std::string world = fmt::format("world{}", arrival);
    c10d::PrefixStore own(world, patient);
    try {
      tell_way(own, way);
      meet_during(wait, own, place.rank, ranks, look, own_versions());
    } catch (const Error& error) {
      if (error.code() == Code::kTimeout) {
        if (const auto twice = rank_that_came_twice(*patient, ranks, arrival)) {
          fail(Code::kTimeout, "{}; rank {} came twice: do two processes have the same RANK?",
               error.message(), *twice);
        }
      }
      throw;
    }
    return {c10::make_intrusive<c10d::PrefixStore>(world, store), find_own_address(own, way)};
  } catch (const c10::Error&) {
    if (arrival != 1 && place.rank != 0 && !place.launcher_hosts_store) {
      throw Outdated();
    }
    fail(Code::kComm, "rank {} lost the store while ranks were meeting: {}", place.rank,
         current_exception_text());
  }
}

// Tries again and again, until the store is there.
Way wait_for_way(const Place& place, const Wait& wait) {
  for (std::string reason;;) {
    if (const auto way = find_way(place.where, place.port, wait.deadline, &reason)) {
      return *way;
    }
    if (wait.is_over()) {
      FSDP2_CHECK(place.rank != 0 || place.launcher_hosts_store, Code::kTimeout,
                  "rank 0 does not reach its own store at {}:{} in time ({}): is this the machine "
                  "that has the address?",
                  place.where, place.port, reason);
      fail(Code::kTimeout, "rank {} found no rank 0 at {}:{} in time ({}){}", place.rank,
           place.where, place.port, reason,
           reason == kNobodyListens
               ? ": it has not started, or the ranks were given different addresses"
               : "");
    }
    std::this_thread::sleep_for(kRetry);
  }
}

MeetingPoint serve_tcp(const Place& place, const Wait& wait) {
  StorePtr store = serve_tcp_store(place.where, place.port, wait.left());
  const Way way = wait_for_way(place, wait);
  try {
    return meet_all_at(std::move(store), way, place, wait);
  } catch (const Error& error) {
    FSDP2_CHECK(
        error.code() != Code::kTimeout || is_own_address(way.there), Code::kTimeout,
        "{}; {} is another machine's address, and rank 0 is here: do two nodes have the same "
        "rank?",
        error.message(), way.there);
    throw;
  }
}

// Throws Outdated if the listener ends meanwhile. It may be no store at all, and is then the same
// at each trial.
StorePtr connect_to_listener(const Way& way, const Place& place, const Wait& wait, int trial) {
  constexpr int kTrials = 3;
  try {
    return connect_tcp_store(place.where, way.there, place.port, wait.deadline);
  } catch (const Error& error) {
    if (error.code() == Code::kComm && !place.launcher_hosts_store && trial < kTrials) {
      throw Outdated();
    }
    throw;
  }
}

MeetingPoint open_tcp(const Place& place, const Wait& wait) {
  if (place.rank == 0 && !place.launcher_hosts_store) {
    return serve_tcp(place, wait);
  }
  for (int trial = 0;; ++trial) {
    const Way way = wait_for_way(place, wait);
    try {
      return meet_all_at(connect_to_listener(way, place, wait, trial), way, place, wait);
    } catch (const Outdated&) {  // the rank 0 of this job comes to the address after it
      std::this_thread::sleep_for(kRetry);
    }
  }
}

MeetingPoint announce_and_meet(const MeetingFile& file, const Place& place, const Wait& wait) {
  const TcpStorePtr store = serve_tcp_store(kLoopback, 0, wait.left());
  const std::string announced = file.announce(store->getPort());
  try {
    MeetingPoint met = meet_all_at(store, {kLoopback, kLoopback}, place, wait);
    file.remove(announced);  // all have read it
    return met;
  } catch (...) {
    file.remove(announced);
    throw;
  }
}

// Nothing if nobody listens where the file says, or rank 0 has gone elsewhere meanwhile: the file
// of an earlier job may still be there.
std::optional<MeetingPoint> try_listener(const MeetingFile& file,
                                         const MeetingFile::Listener& listener, const Place& place,
                                         const Wait& wait) {
  std::optional<Way> way;
  std::string why;
  const auto host =
      std::find_if(listener.hosts.begin(), listener.hosts.end(), [&](const std::string& host) {
        way = find_way(host, listener.port, wait.deadline, &why);
        return way.has_value();
      });
  if (!way) {
    return std::nullopt;
  }
  try {
    StorePtr store = connect_tcp_store(*host, way->there, listener.port, wait.deadline);
    return meet_all_at(std::move(store), *way, place, wait, [&] {
      const auto now = file.find();
      if (now && now->text != listener.text) {
        throw Outdated();
      }
    });
  } catch (const Outdated&) {
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() == Code::kComm && !wait.is_over()) {
      return std::nullopt;
    }
    throw;
  }
}

MeetingPoint open_file(const Place& place, const Wait& wait) {
  const MeetingFile file(place.where);
  if (place.rank == 0) {
    return announce_and_meet(file, place, wait);
  }
  for (;;) {
    const auto listener = file.find();
    if (listener) {
      if (auto met = try_listener(file, *listener, place, wait)) {
        return *met;
      }
    }
    if (wait.is_over()) {
      fail(Code::kTimeout,
           "rank {} found no rank 0 through {} in time ({}): it has not started, or the ranks were "
           "given different files",
           place.rank, file.path(),
           listener ? fmt::format("nobody listens at {} port {}", fmt::join(listener->hosts, ", "),
                                  listener->port)
                    : "no such file");
    }
    std::this_thread::sleep_for(kRetry);
  }
}

// A process may lack room for them; LibTorch's sockets would try again until the time is over, on
// all ranks.
void check_may_open(const Place& place, int files) {
  std::vector<int> opened;
  int file = 0;
  while (static_cast<int>(opened.size()) < files && (file = ::eventfd(0, EFD_CLOEXEC)) >= 0) {
    opened.push_back(file);
  }
  const int error = errno;
  std::for_each(opened.begin(), opened.end(), ::close);
  if (file < 0) {
    throw Error(Code::kIo,
                fmt::format("rank {} may open {} more files, and needs {} to meet the others ({}): "
                            "allow it more, as by ulimit -n",
                            place.rank, opened.size(), files, system_error_text(error)),
                error);
  }
}

int files_to_meet(const Place& place) {
  constexpr int kFilesOfARank = 2;     // connections to the store: its own, and its watcher's
  constexpr int kFilesOfTheStore = 9;  // as counted: sockets that listen, pipes, and events
  const bool keeps_store = place.rank == 0 && !place.launcher_hosts_store;
  return kFilesOfARank + (keeps_store ? kFilesOfTheStore + kFilesOfARank * place.size : 0);
}

}  // namespace

MeetingPoint open_store(const Place& place, milliseconds timeout) {
  check_may_open(place, files_to_meet(place));
  const Wait wait(timeout);
  return place.meeting == Meeting::kTcp ? open_tcp(place, wait) : open_file(place, wait);
}

void meet_at(c10d::Store& store, int rank, const std::vector<int>& ranks, milliseconds timeout,
             const std::function<void()>& look, const std::string& versions) {
  meet_during(Wait(timeout), store, rank, ranks, look, versions);
}

}  // namespace fsdp2
