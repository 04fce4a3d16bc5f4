#include "core/comm/failure/store_board.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/base/quiet_thread.h"
#include "core/comm/meet/patience.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLong{24};  // one wait of a watcher; longer overflows poll(2)
constexpr std::chrono::milliseconds kPatience{2000};  // with a store that may not answer
constexpr std::chrono::milliseconds kLastTry{500};    // with one that has not answered
constexpr std::chrono::milliseconds kAnswer{1000};    // for a rank to answer a roll call
// For the others to leave a job that goes well. On a machine that is busy a process may stand still
// for seconds, amid its last collective too, and then go on.
constexpr std::chrono::milliseconds kLeaving{15000};
constexpr std::chrono::milliseconds kLongestPause{20};

// Whether the store could be had for it; nobody can be told over one that is lost.
template <typename Work>
bool attempt(const Work& work) noexcept {
  try {
    work();
    return true;
  } catch (...) {
    return false;
  }
}

std::string failure_key(int64_t n) { return "failures/" + std::to_string(n); }
std::string bells_key(int rank) { return "bells/" + std::to_string(rank); }
std::string bell_key(int rank, int64_t n) {
  return "bell/" + std::to_string(rank) + "/" + std::to_string(n);
}
std::string present_key(int rank) { return "present/" + std::to_string(rank); }

// "0,1\nrank 1: no more memory"
std::string to_text(const Failure& failure) {
  return failure.ranks.to_text() + "\n" + failure.text;
}

Failure failure_of(const std::string& text) {
  const size_t end = text.find('\n');
  return {RankSet::from_text(text.substr(0, end)), text.substr(end + 1)};
}

// What a rank answers that will answer no more.
constexpr int64_t kEveryBell = std::numeric_limits<int64_t>::max();

// Returns how many bells the rank had answered before this one.
int64_t ring(c10d::Store& store, int rank) {
  const int64_t answered = store.add(bells_key(rank), 0);
  store.set(bell_key(rank, answered), "rung");
  return answered;
}

// What a rank answered to its last bell, and how many it has answered.
struct Present {
  int64_t bells = 0;
  std::string waiting_for;
};

Present present_of(c10d::Store& store, int rank) {
  if (!store.check({present_key(rank)})) {
    return {};
  }
  const std::string text = store.get_to_str(present_key(rank));
  const size_t space = text.find(' ');
  return {std::stoll(text.substr(0, space)), text.substr(space + 1)};
}

// Writes the failure down, unless one that has all of its ranks is there, and tells `found` of
// those that were there before it, then of it or the one that has its ranks. Then rings all bells.
void write_down(c10d::Store& store, const Failure& failure, int world_size,
                const std::function<void(const Failure&)>& found) {
  const std::string text = to_text(failure);
  bool is_there = false;
  for (int64_t n = 1; !is_there; ++n) {
    const Failure one = failure_of(store.compareSet(failure_key(n), std::string(), text));
    found(one);
    is_there = one.ranks.has_all_of(failure.ranks);
  }
  for (int rank = 0; rank < world_size; ++rank) {
    ring(store, rank);
  }
}

struct Call {
  int rank;
  int64_t bells_before;
};

// Until all have answered, or kAnswer is over.
std::vector<RollCall::Answer> collect_answers(c10d::Store& store, const std::vector<Call>& calls) {
  const auto deadline = Clock::now() + kAnswer;
  for (;;) {
    std::vector<RollCall::Answer> answers;
    for (const Call& call : calls) {
      Present present = present_of(store, call.rank);
      const bool answered = present.bells > call.bells_before;
      answers.push_back({call.rank, answered, answered ? std::move(present.waiting_for) : ""});
    }
    const bool complete = std::all_of(answers.begin(), answers.end(),
                                      [](const auto& answer) { return answer.answered; });
    if (complete || Clock::now() >= deadline) {
      return answers;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

// What the watcher shares with the board.
struct StoreBoard::Watch {
  LocalBoard known;
  std::atomic<bool> leaving{false};
  StoreKeeper keeper = StoreKeeper::kRankZero;
  int64_t failures_read = 0;  // by the watcher

  void run(c10d::Store& store, int rank) {
    try {
      int64_t bells = 0;
      do {
        wait_for(store, bell_key(rank, bells));
        bells = store.add(bells_key(rank), 1);
        answer(store, rank, bells);
      } while (!leaving && !read_news(store));
      answer(store, rank, kEveryBell);
      store.add("left", 1);
    } catch (...) {
      if (!leaving) {
        known.publish({RankSet::all(),
                       keeper == StoreKeeper::kRankZero
                           ? "lost the store that rank 0 keeps: rank 0 has ended"
                           : "lost the store that the launcher keeps: the launcher has ended"});
      }
    }
  }

  void answer(c10d::Store& store, int rank, int64_t bells) {
    store.set(present_key(rank), std::to_string(bells) + " " + known.call({rank})[0].waiting_for);
  }

  // Whether all ranks of the job have failed, and there can be no further news.
  bool read_news(c10d::Store& store) {
    while (store.check({failure_key(failures_read + 1)})) {
      const Failure failure = failure_of(store.get_to_str(failure_key(++failures_read)));
      known.publish(failure);
      if (failure.ranks.is_all()) {
        return true;
      }
    }
    return false;
  }

  static void wait_for(c10d::Store& store, const std::string& key) {
    for (;;) {
      const auto start = Clock::now();
      try {
        store.wait({key}, kLong);
        return;
      } catch (...) {
        if (Clock::now() - start < kLong) {
          throw;
        }
      }
    }
  }
};

StoreBoard::StoreBoard(const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
                       std::chrono::milliseconds timeout, StoreKeeper keeper)
    : store_(store),
      view_(patient(kPatience, store)),
      rank_(rank),
      world_size_(world_size),
      leaving_(std::clamp(timeout, kPatience, kLeaving)),
      watch_(std::make_shared<Watch>()) {
  watch_->keeper = keeper;
  const auto run = std::make_shared<std::packaged_task<void()>>(
      [watch = watch_, own = clone_until(Clock::now() + timeout, store), rank] {
        watch->run(*own, rank);
      });
  watched_ = run->get_future();
  watcher_ = start_quiet_thread([run] { (*run)(); });
}

StoreBoard::~StoreBoard() {
  if (rank_ == 0 && watch_->keeper == StoreKeeper::kRankZero) {
    wait_for_the_others();
  }
  watch_->leaving = true;
  const auto ring_own = [rank = rank_](c10d::Store& store) { ring(store, rank); };
  const bool told = has_ended_within(std::chrono::milliseconds(0)) ||
                    attempt([&] { ring_own(*view()); }) || try_once_more(ring_own);
  if (has_ended_within(told ? kPatience : std::chrono::milliseconds(0))) {
    watcher_.join();
  } else {
    watcher_.detach();
  }
}

bool StoreBoard::has_ended_within(std::chrono::milliseconds time) const {
  return watched_.wait_for(time) == std::future_status::ready;
}

// The store as long as it answers: after one call that it did not answer in time, all fail at once.
c10::intrusive_ptr<c10d::Store> StoreBoard::view() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return view_;
}

void StoreBoard::renew_view() {
  auto view = patient(kPatience, store_);
  const std::lock_guard<std::mutex> lock(mutex_);
  view_.swap(view);
}

// Whether the store answers after all: it was the process that stood still, or the store for a
// moment. If it goes on later, the work is done then, should the process live.
bool StoreBoard::try_once_more(const std::function<void(c10d::Store&)>& work) noexcept {
  return attempt([&] {
    const auto task =
        std::make_shared<std::packaged_task<void()>>([store = store_, work] { work(*store); });
    std::future<void> done = task->get_future();
    start_quiet_thread([task] { (*task)(); }).detach();
    FSDP2_CHECK(done.wait_for(kLastTry) == std::future_status::ready, Code::kTimeout,
                "the store does not answer");
    done.get();
    renew_view();
  });
}

std::optional<std::string> StoreBoard::first_among(const RankSet& ranks) const {
  return watch_->known.first_among(ranks);
}

void StoreBoard::publish(const Failure& failure) noexcept {
  if (watch_->known.has_told(failure.ranks)) {
    return;
  }
  const bool told = attempt([&] {
    write_down(*view(), failure, world_size_,
               [this](const Failure& found) { watch_->known.publish(found); });
  });
  watch_->known.publish(failure);  // should the store not have answered
  if (!told && !tells_late_.exchange(true)) {
    attempt([&] {
      tells_late_ = !try_once_more([failure, size = world_size_](c10d::Store& store) {
        write_down(store, failure, size, [](const Failure& /*found*/) {});  // the watcher reads it
      });
    });
  }
}

void StoreBoard::set_waiting_for(int rank, const std::string& what) noexcept {
  watch_->known.set_waiting_for(rank, what);
}

std::vector<RollCall::Answer> StoreBoard::call(const std::vector<int>& ranks) noexcept {
  std::vector<Answer> answers;
  const bool asked = attempt([&] {
    const auto store = view();
    std::vector<Call> calls;
    for (const int rank : ranks) {
      calls.push_back({rank, ring(*store, rank)});
    }
    answers = collect_answers(*store, calls);
  });
  if (!asked) {
    return watch_->keeper == StoreKeeper::kRankZero ? std::vector<Answer>{{0, false, ""}}
                                                    : std::vector<Answer>();
  }
  absent_ = static_cast<int>(std::count_if(answers.begin(), answers.end(),
                                           [](const Answer& answer) { return !answer.answered; }));
  return answers;
}

// Rank 0 keeps the store in most jobs: were it to go first, the others would take a normal end for
// a failure. It hears of failures meanwhile.
void StoreBoard::wait_for_the_others() noexcept {
  const auto start = Clock::now();
  const auto wait = [&] {
    const auto store = view();
    for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
      const bool goes_well = !watch_->known.first_among(RankSet::all()).has_value();
      const int own = has_ended_within(std::chrono::milliseconds(0)) ? 1 : 0;
      if (store->add("left", 0) >= world_size_ - 1 + own - absent_ ||
          Clock::now() >= start + (goes_well ? leaving_ : kPatience)) {
        return;
      }
      std::this_thread::sleep_for(pause);
    }
  };
  if (!attempt(wait)) {  // this process has stood still amid a call
    attempt([&] {
      renew_view();
      wait();
    });
  }
}

}  // namespace fsdp2
