#include "core/comm/rendezvous.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <numeric>
#include <thread>

#include "core/base/error.h"
#include "core/comm/sigpipe.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{10};      // between two looks at what is not there yet
constexpr milliseconds kConnect{1000};  // for one attempt to connect

double seconds(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

bool accepts(const addrinfo& address) {
  const int number = socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (number < 0) {
    return false;
  }
  static_cast<void>(::connect(number, address.ai_addr, address.ai_addrlen));  // poll tells
  pollfd connected{number, POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof(error);
  const bool accepted = poll(&connected, 1, static_cast<int>(kConnect.count())) == 1 &&
                        getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &length) == 0 &&
                        error == 0;
  close(number);
  return accepted;
}

// Waits until rank 0 listens. c10d's own client tries less and less often, and so would come
// seconds late; it also writes a warning for each attempt.
void wait_for_listener(const Place& place, Clock::time_point deadline) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  const std::string port = std::to_string(place.port);
  std::string reason;
  do {
    addrinfo* found = nullptr;
    const int unknown = getaddrinfo(place.where.c_str(), port.c_str(), &wanted, &found);
    reason = unknown == 0 ? "nobody listens there" : gai_strerror(unknown);
    bool accepted = false;
    for (addrinfo* one = found; one != nullptr && !accepted; one = one->ai_next) {
      accepted = accepts(*one);
    }
    if (found != nullptr) {
      freeaddrinfo(found);
    }
    if (accepted) {
      return;
    }
    std::this_thread::sleep_for(kRetry);
  } while (Clock::now() < deadline);
  fail(Code::kTimeout,
       "rank {} found no rank 0 at {}:{} in time ({}): it has not started, or the ranks were given "
       "different addresses",
       place.rank, place.where, place.port, reason);
}

c10::intrusive_ptr<c10d::Store> connect(const Place& place, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.rank == 0 && !place.launcher_hosts_store;
  options.waitWorkers = false;  // meet_at waits, and tells who is missing
  options.timeout = timeout;
  if (!options.isServer) {
    wait_for_listener(place, Clock::now() + timeout);
  }
  const NoSigpipe guard;
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.where, options);
  } catch (...) {
    const std::string text = current_exception_text();
    if (options.isServer && text.find("EADDRINUSE") != std::string::npos) {
      fail(Code::kIo,
           "rank 0 cannot listen on port {}: it is in use; set MASTER_PORT to a free one, or end "
           "the program that holds it",
           place.port);
    }
    fail(Code::kComm, "rank {} cannot use the store at {}:{}: {}", place.rank, place.where,
         place.port, text);
  }
}

c10::intrusive_ptr<c10d::Store> connect_or_open(const Place& place, milliseconds timeout) {
  if (place.meeting == Meeting::kTcp) {
    return connect(place, timeout);
  }
  try {
    auto store = c10::make_intrusive<c10d::FileStore>(place.where, place.size);
    store->setTimeout(timeout);
    return store;
  } catch (...) {
    fail(Code::kIo, "rank {} cannot use the file {} as a meeting point: {}", place.rank,
         place.where, current_exception_text());
  }
}

std::string here(int rank) { return fmt::format("here/{}", rank); }

[[noreturn]] void fail_for_missing(c10d::Store& store, const std::vector<int>& ranks,
                                   milliseconds timeout) {
  std::vector<int> missing;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(missing),
               [&](int rank) { return !store.check({here(rank)}); });
  const size_t absent = missing.size();
  missing.resize(std::min<size_t>(absent, 8));
  fail(Code::kTimeout, "{} of {} ranks came within {:.1f} s, missing: {}{}", ranks.size() - absent,
       ranks.size(), seconds(timeout), fmt::join(missing, ", "), absent > 8 ? ", ..." : "");
}

}  // namespace

c10::intrusive_ptr<c10d::Store> open_store(const Place& place, milliseconds timeout) {
  auto store = connect_or_open(place, timeout);
  if (!place.key_prefix.empty()) {
    store = c10::make_intrusive<c10d::PrefixStore>(place.key_prefix, store);
  }
  std::vector<int> ranks(place.size);
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto arrivals = [&](int rank) { return fmt::format("arrivals/{}", rank); };
  try {
    // A store that outlives a world (torchrun's agent, a file) can serve the next one: every rank
    // has arrived equally often by then.
    const int64_t arrival = store->add(arrivals(place.rank), 1);
    auto own = c10::make_intrusive<c10d::PrefixStore>(fmt::format("world{}", arrival), store);
    try {
      meet_at(*own, place.rank, ranks, timeout);
    } catch (const Error& error) {
      for (const int rank : ranks) {
        if (error.code() == Code::kTimeout && store->add(arrivals(rank), 0) > arrival) {
          fail(Code::kTimeout, "{}; rank {} came twice: do two processes have the same RANK?",
               error.message(), rank);
        }
      }
      throw;
    }
    return own;
  } catch (const c10::Error&) {
    fail(Code::kComm, "rank {} lost the store while ranks were meeting: {}", place.rank,
         current_exception_text());
  }
}

void meet_at(c10d::Store& store, int rank, const std::vector<int>& ranks, milliseconds timeout,
             const std::function<void()>& look) {
  const auto deadline = Clock::now() + timeout;
  store.set(here(rank), "1");
  if (store.add("count", 1) == static_cast<int64_t>(ranks.size())) {
    store.set("all", "1");
  }
  // Not Store::wait: TCPStore's cannot be left early, and warns whenever its time is over.
  for (milliseconds pause{1}; !store.check({"all"}); pause = std::min(2 * pause, kRetry)) {
    if (Clock::now() >= deadline) {
      fail_for_missing(store, ranks, timeout);
    }
    if (look) {
      look();
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace fsdp2
