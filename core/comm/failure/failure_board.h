// The failures that a rank knows of, in one order for all ranks of the job, each with the ranks
// among which it happened.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/failure/roll_call.h"

namespace fsdp2 {

// Some ranks of a job, or all of them, however many there are.
class RankSet {
 public:
  static RankSet all() { return RankSet({}); }
  static RankSet of(std::vector<int> ranks);  // REQUIRES: not empty

  bool is_all() const { return ranks_.empty(); }
  bool shares_one_with(const RankSet& other) const;
  bool has_all_of(const RankSet& other) const;

  // "0,2,3", and "all".
  std::string to_text() const;
  static RankSet from_text(const std::string& text);

 private:
  explicit RankSet(std::vector<int> ranks) : ranks_(std::move(ranks)) {}
  std::vector<int> ranks_;  // ascending; empty: all
};

struct Failure {
  RankSet ranks;
  std::string text;
};

// Any thread.
class FailureBoard : public RollCall {
 public:
  // The text of the first failure that has one of the ranks; nullopt if there is none.
  virtual std::optional<std::string> first_among(const RankSet& ranks) const = 0;
  // Does nothing if an earlier failure has all of its ranks.
  virtual void publish(const Failure& failure) noexcept = 0;
};

// The ranks are threads that share it, or there is one alone.
class LocalBoard final : public FailureBoard {
 public:
  std::optional<std::string> first_among(const RankSet& ranks) const override;
  void publish(const Failure& failure) noexcept override;
  void set_waiting_for(int rank, const std::string& what) noexcept override;
  std::vector<Answer> call(const std::vector<int>& ranks) noexcept override;

  // Whether one failure has all of the ranks.
  bool has_told(const RankSet& ranks) const;

 private:
  bool is_told(const RankSet& ranks) const;  // REQUIRES: the mutex is held

  mutable std::mutex mutex_;
  std::vector<Failure> failures_;
  std::map<int, std::string> waiting_for_;
  std::atomic<bool> any_{false};
};

}  // namespace fsdp2
