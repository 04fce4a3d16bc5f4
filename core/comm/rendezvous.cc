#include "core/comm/rendezvous.h"

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "core/comm/sigpipe.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSlice{200};

double seconds(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

c10::intrusive_ptr<c10d::Store> connect(const Place& place, milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = place.port;
  options.isServer = place.rank == 0 && !place.launcher_hosts_store;
  options.waitWorkers = false;  // meet_at waits, and tells who is missing
  options.timeout = timeout;
  const auto start = Clock::now();
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
    if (Clock::now() - start >= timeout) {
      fail(Code::kTimeout,
           "rank {} found no rank 0 at {}:{} within {:.1f} s: it has not started, or the ranks "
           "were given different addresses",
           place.rank, place.where, place.port, seconds(timeout));
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
  std::vector<std::string> keys;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(keys), here);
  store.set(here(rank), "1");
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const auto now = Clock::now();
    if (now >= deadline) {
      break;
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - now);
    try {
      store.wait(keys, std::min(left, kSlice));
      return;
    } catch (const c10::Error&) {
      store.check({here(rank)});  // throws if the store is lost, which a slice's end does not mean
    }
    if (look) {
      look();
    }
  }
  std::vector<int> missing;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(missing),
               [&](int other) { return !store.check({here(other)}); });
  if (missing.empty()) {
    return;
  }
  const size_t absent = missing.size();
  missing.resize(std::min<size_t>(absent, 8));
  fail(Code::kTimeout, "{} of {} ranks came within {:.1f} s, missing: {}{}", ranks.size() - absent,
       ranks.size(), seconds(timeout), fmt::join(missing, ", "), absent > 8 ? ", ..." : "");
}

}  // namespace fsdp2
