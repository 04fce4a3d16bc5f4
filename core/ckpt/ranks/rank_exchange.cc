#include "core/ckpt/ranks/rank_exchange.h"

#include <algorithm>
#include <list>
#include <thread>
#include <utility>

namespace fsdp2::ckpt {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Between two looks for a text. A thirtieth of the time waited so far: a save takes hardly longer
// for it, and the store of a long one is left in peace.
constexpr microseconds kLongestPause{20000};
constexpr microseconds kShortestPause{1000};
constexpr int kPausesPerWait = 32;
constexpr int kRanksPerShortestPause = 16;  // all ask the one store
// A rank whose training has failed may still finish what it is writing. Whoever waits for all ranks
// gives up first, so that the others hear from it whom it has waited for.
constexpr seconds kGraceAfterFailure{3};
constexpr seconds kGraceOfCollector{2};
// A process on a busy machine may stand still for seconds.
constexpr seconds kLongestReading{15};
constexpr seconds kLongestReadingAfterFailure{1};
constexpr milliseconds kBetweenNotes{100};
// Between two looks at how a rank gets on.
constexpr int kLooksPerTimeout = 16;
constexpr Clock::duration kLongestBetweenLooks = seconds(1);

constexpr char kRead[] = "read";

std::string progress_key(int rank) { return fmt::format("progress/{}", rank); }

microseconds pause_after(Clock::duration waited, int ranks) {
  const microseconds shortest = kShortestPause * std::max(1, ranks / kRanksPerShortestPause);
  const auto part = std::chrono::duration_cast<microseconds>(waited / kPausesPerWait);
  return std::min(std::max(shortest, part), kLongestPause);
}

Clock::duration between_looks(const Team& team) {
  return std::min<Clock::duration>(team.timeout() / kLooksPerTimeout, kLongestBetweenLooks);
}

}  // namespace

// For one text of one rank.
class RankExchange::Wait {
 public:
  Wait(RankExchange& exchange, const std::string& key, int rank, std::string what,
       Clock::duration grace_after_failure)
      : exchange_(exchange),
        name_(exchange.full(key)),
        rank_(rank),
        what_(std::move(what)),
        grace_after_failure_(grace_after_failure) {}

  int rank() const { return rank_; }
  Clock::duration waited() const { return Clock::now() - start_; }

  // Whether the text is there. Throws when the rank is overdue.
  bool look() {
    if (ask([this] { return exchange_.notes_.has(name_); })) {
      return true;
    }
    give_up_if_overdue();
    return false;
  }
  std::string take() {
    return ask([this] { return exchange_.notes_.get(name_); });
  }

 private:
  // The store of a rank that is stopped does not answer.
  template <typename Question>
  auto ask(const Question& question) const -> decltype(question()) {
    try {
      return question();
    } catch (const Error& error) {
      FSDP2_CHECK(error.code() != Code::kTimeout, Code::kTimeout, "{}: {}", describe(),
                  error.message());
      throw;
    }
  }

  void give_up_if_overdue() {
    Team& team = exchange_.team_;
    const auto now = Clock::now();
    if (!failed_ && team.failure().failed()) {
      failed_ = true;
      deadline_ = std::min(deadline_, now + grace_after_failure_);
    }
    const bool is_own = rank_ == team.rank();  // whose progress is that it waits
    if (!failed_ && !is_own && now >= next_look_) {
      next_look_ = now + between_looks(team);
      const int64_t seen = ask([this] { return exchange_.count(progress_key(rank_), 0); });
      if (seen != progress_) {
        progress_ = seen;
        deadline_ = now + team.timeout();
      }
    }
    if (now >= deadline_) {
      FSDP2_CHECK(!failed_, Code::kPeerFailed,
                  "gave up waiting for rank {} {}, since a rank failed: {}",
                  exchange_.team_.rank_in_job(rank_), what_, team.failure().text());
      fail(Code::kTimeout, "{}: it has ended, is stopped or is late", describe());
    }
  }

  std::string describe() const {
    return fmt::format("waited {:.1f} s for rank {} {}",
                       std::chrono::duration<double>(waited()).count(),
                       exchange_.team_.rank_in_job(rank_), what_);
  }

  RankExchange& exchange_;
  const std::string name_;
  const int rank_;
  const std::string what_;
  const Clock::duration grace_after_failure_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point deadline_ = start_ + exchange_.team_.timeout();
  Clock::time_point next_look_ = start_ + between_looks(exchange_.team_);
  int64_t progress_ = 0;
  bool failed_ = false;  // a rank of the team
};

// Every rank counts for itself, and so comes to the same number as all others.
RankExchange::RankExchange(Team& team)
    : team_(team),
      notes_(team, "saving a checkpoint"),
      number_(notes_.count(fmt::format("checkpoint/of/{}", team.rank()), 1)) {}

std::string RankExchange::full(const std::string& key) const {
  return fmt::format("checkpoint/{}/{}", number_, key);
}

void RankExchange::put(const std::string& key, const std::string& text) {
  notes_.put(full(key), text);
}

int64_t RankExchange::count(const std::string& key, int64_t more) {
  return notes_.count(full(key), more);
}

std::string RankExchange::get(const std::string& key, int rank, const std::string& what) {
  Wait wait(*this, key, rank, what, kGraceAfterFailure);
  while (!wait.look()) {
    std::this_thread::sleep_for(pause_after(wait.waited(), team_.size()));
  }
  return wait.take();
}

std::vector<RankExchange::Answer> RankExchange::get_of_all(
    const std::function<std::string(int rank)>& key_of, const std::string& what) {
  std::vector<Answer> answers(team_.size());
  std::list<Wait> waits;
  for (int rank = 0; rank < team_.size(); ++rank) {
    waits.emplace_back(*this, key_of(rank), rank, what, kGraceOfCollector);
  }
  // Looks for the first text that is missing, and only now and then for all of them.
  auto next_round = Clock::now();
  while (!waits.empty()) {
    note_progress();
    const auto now = Clock::now();
    const bool in_round = now >= next_round;
    next_round = in_round ? now + between_looks(team_) : next_round;
    bool goes_on = true;
    for (auto wait = waits.begin(); goes_on && wait != waits.end();) {
      Answer& answer = answers[wait->rank()];
      bool ended = true;
      try {
        ended = wait->look();
        answer.text = ended ? wait->take() : "";
      } catch (...) {
        answer.error = current_exception_as_error();
      }
      goes_on = ended || in_round;
      wait = ended ? waits.erase(wait) : std::next(wait);
    }
    if (!waits.empty()) {
      std::this_thread::sleep_for(pause_after(waits.front().waited(), team_.size()));
    }
  }
  return answers;
}

void RankExchange::note_progress() {
  const auto now = Clock::now().time_since_epoch();
  auto next = next_note_.load();
  if (now.count() >= next &&
      next_note_.compare_exchange_strong(next, (now + Clock::duration(kBetweenNotes)).count())) {
    count(progress_key(team_.rank()), 1);
  }
}

void RankExchange::note_read() { count(kRead, 1); }

bool RankExchange::wait_until_read_by(int ranks) {
  const auto start = Clock::now();
  const auto longest = [this] {
    return std::min<Clock::duration>(
        team_.failure().failed() ? kLongestReadingAfterFailure : kLongestReading, team_.timeout());
  };
  while (count(kRead, 0) < ranks) {
    if (Clock::now() >= start + longest()) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  remove(kRead);
  for (int rank = 0; rank < team_.size(); ++rank) {
    remove(progress_key(rank));
  }
  return true;
}

void RankExchange::remove(const std::string& key) { notes_.remove(full(key)); }

}  // namespace fsdp2::ckpt
