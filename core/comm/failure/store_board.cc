#include "core/comm/failure/store_board.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <utility>

#include "core/comm/meet/patience.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLong{24};  // one wait of a watcher; longer overflows poll(2)
constexpr std::chrono::milliseconds kPatience{2000};  // with a store that may not answer
constexpr std::chrono::milliseconds kAnswer{1000};    // for a rank to answer a roll call

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
    : store_(patient(kPatience, store)),
      rank_(rank),
      world_size_(world_size),
      watch_(std::make_shared<Watch>()) {
  watch_->keeper = keeper;
  std::packaged_task<void()> run([watch = watch_, own = clone_until(Clock::now() + timeout, store),
                                  rank] { watch->run(*own, rank); });
  watched_ = run.get_future();
  watcher_ = std::thread(std::move(run));
}

StoreBoard::~StoreBoard() {
  watch_->leaving = true;
  const auto ended_within = [this](std::chrono::milliseconds time) {
    return watched_.wait_for(time) == std::future_status::ready;
  };
  const bool told = attempt([&] {
    if (!ended_within(std::chrono::milliseconds(0))) {
      ring(*store_, rank_);
    }
  });
  if (ended_within(told ? kPatience : std::chrono::milliseconds(0))) {
    watcher_.join();
  } else {
    watcher_.detach();
  }
  if (rank_ == 0) {
    wait_for_the_others();
  }
}

std::optional<std::string> StoreBoard::first_among(const RankSet& ranks) const {
  return watch_->known.first_among(ranks);
}

void StoreBoard::publish(const Failure& failure) noexcept {
  if (watch_->known.has_told(failure.ranks)) {
    return;
  }
  attempt([&] {
    const std::string text = to_text(failure);
    for (int64_t n = 1;; ++n) {
      const Failure found = failure_of(store_->compareSet(failure_key(n), std::string(), text));
      watch_->known.publish(found);
      if (found.ranks.has_all_of(failure.ranks)) {
        break;
      }
    }
    for (int rank = 0; rank < world_size_; ++rank) {
      ring(*store_, rank);
    }
  });
  watch_->known.publish(failure);  // should the store not have answered
}

void StoreBoard::set_waiting_for(int rank, const std::string& what) noexcept {
  watch_->known.set_waiting_for(rank, what);
}

std::vector<RollCall::Answer> StoreBoard::call(const std::vector<int>& ranks) noexcept {
  std::vector<Answer> answers;
  const bool asked = attempt([&] {
    std::vector<Call> calls;
    for (const int rank : ranks) {
      calls.push_back({rank, ring(*store_, rank)});
    }
    answers = collect_answers(*store_, calls);
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
// a failure.
void StoreBoard::wait_for_the_others() const noexcept {
  const auto deadline = Clock::now() + kPatience;
  attempt([&] {
    while (store_->add("left", 0) < world_size_ - absent_ && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
}

}  // namespace fsdp2
