#include "core/comm/failure/failure_board.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace fsdp2 {

namespace {

constexpr char kAll[] = "all";

}  // namespace

RankSet RankSet::of(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return RankSet(std::move(ranks));
}

bool RankSet::shares_one_with(const RankSet& other) const {
  if (is_all() || other.is_all()) {
    return true;
  }
  auto mine = ranks_.begin();
  auto others = other.ranks_.begin();
  while (mine != ranks_.end() && others != other.ranks_.end()) {
    if (*mine == *others) {
      return true;
    }
    *mine < *others ? ++mine : ++others;
  }
  return false;
}

bool RankSet::has_all_of(const RankSet& other) const {
  return is_all() || (!other.is_all() && std::includes(ranks_.begin(), ranks_.end(),
                                                       other.ranks_.begin(), other.ranks_.end()));
}

std::string RankSet::to_text() const {
  std::string text = is_all() ? kAll : "";
  for (const int rank : ranks_) {
    text += (text.empty() ? "" : ",") + std::to_string(rank);
  }
  return text;
}

RankSet RankSet::from_text(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream stream(text == kAll ? "" : text);
  for (std::string number; std::getline(stream, number, ',');) {
    ranks.push_back(std::stoi(number));
  }
  return RankSet(std::move(ranks));
}

std::optional<std::string> LocalBoard::first_among(const RankSet& ranks) const {
  if (!any_) {
    return std::nullopt;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto first = std::find_if(failures_.begin(), failures_.end(), [&](const Failure& failure) {
    return failure.ranks.shares_one_with(ranks);
  });
  return first == failures_.end() ? std::nullopt : std::optional(first->text);
}

bool LocalBoard::is_told(const RankSet& ranks) const {
  return std::any_of(failures_.begin(), failures_.end(),
                     [&](const Failure& failure) { return failure.ranks.has_all_of(ranks); });
}

bool LocalBoard::has_told(const RankSet& ranks) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_told(ranks);
}

void LocalBoard::publish(const Failure& failure) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!is_told(failure.ranks)) {
    failures_.push_back(failure);
    any_ = true;
  }
}

void LocalBoard::set_waiting_for(int rank, const std::string& what) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  waiting_for_[rank] = what;
}

std::vector<RollCall::Answer> LocalBoard::call(const std::vector<int>& ranks) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Answer> answers;
  for (const int rank : ranks) {
    answers.push_back({rank, true, waiting_for_[rank]});
  }
  return answers;
}

}  // namespace fsdp2
