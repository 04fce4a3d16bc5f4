#include "core/comm/check/collective_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

constexpr std::chrono::microseconds kFirstPause{50};
constexpr std::chrono::microseconds kLongestPause{5000};

}  // namespace

bool wants_detailed_checks() {
  const char* value = std::getenv("FSDP2_DEBUG");
  const std::string wanted = value == nullptr ? "" : value;
  FSDP2_CHECK(wanted.empty() || wanted == "off" || wanted == "detail", Code::kInvalidArgument,
              "FSDP2_DEBUG is '{}': expected detail or off", wanted);
  return wanted == "detail";
}

CollectiveCheck::CollectiveCheck(c10::intrusive_ptr<c10d::Store> store, const std::string& key,
                                 int rank, std::vector<int> members)
    : store_(std::move(store)),
      key_("detail/" + key),
      rank_(static_cast<size_t>(rank)),
      members_(std::move(members)) {}

std::string CollectiveCheck::key(int64_t call, size_t member) const {
  return fmt::format("{}/{}/{}", key_, call, member);
}

std::string CollectiveCheck::text_of(int64_t call, size_t member) {
  return member == rank_ ? what_ : store_->get_to_str(key(call, member));
}

// What was announced two calls ago all have read: they have announced the call after it.
void CollectiveCheck::announce(const std::string& what) {
  last_ = std::exchange(what_, what);
  ++calls_;
  store_->set(key(calls_, rank_), what_);
  if (calls_ > 2) {
    store_->deleteKey(key(calls_ - 2, rank_));
  }
  pause_ = std::chrono::microseconds(0);
}

bool CollectiveCheck::all_have_announced() {
  std::this_thread::sleep_for(pause_);
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  std::vector<std::string> keys;
  for (size_t member = 0; member < members_.size(); ++member) {
    keys.push_back(key(calls_, member));
  }
  return store_->check(keys);
}

std::optional<std::string> CollectiveCheck::difference() {
  const std::string first = text_of(calls_, 0);
  for (size_t member = 1; member < members_.size(); ++member) {
    const std::string other = text_of(calls_, member);
    if (other != first) {
      return fmt::format("rank {} has {}, rank {} has {}", members_[0], first, members_[member],
                         other);
    }
  }
  return std::nullopt;
}

std::string CollectiveCheck::describe_missing() {
  std::vector<std::string> missing;
  for (size_t member = 0; member < members_.size(); ++member) {
    if (!store_->check({key(calls_, member)})) {
      missing.push_back(fmt::format("rank {}", members_[member]));
    }
  }
  if (missing.empty()) {  // since somebody has last looked
    return fmt::format("the last rank has only now made call {} of the group", calls_);
  }
  return fmt::format("{} {} not made call {} of the group{}", fmt::join(missing, ", "),
                     missing.size() == 1 ? "has" : "have", calls_,
                     calls_ > 1 ? fmt::format(", after {} as call {}", last_, calls_ - 1) : "");
}

}  // namespace fsdp2
