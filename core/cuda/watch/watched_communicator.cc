#include "core/cuda/watch/watched_communicator.h"

#include <stdexcept>
#include <utility>
#include <vector>

namespace fsdp2::cuda {

namespace {

constexpr std::chrono::milliseconds kLook{100};
constexpr std::chrono::milliseconds kSettle{1};
// What every layer of a step asks for settles within some tens of microseconds, and a sleep takes
// more than a millisecond.
constexpr std::chrono::microseconds kSoon{500};

}  // namespace

WatchedCommunicator::WatchedCommunicator(std::unique_ptr<Communicator> communicator,
                                         std::chrono::milliseconds timeout,
                                         std::chrono::milliseconds longest_call)
    : communicator_(std::move(communicator)), timeout_(timeout), longest_call_(longest_call) {
  watcher_ = std::thread([this] { watch(); });
}

WatchedCommunicator::~WatchedCommunicator() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_all();
  watcher_.join();
  abort("closed");
}

void WatchedCommunicator::begin_to_ask() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
  asked_ = Clock::now() + timeout_;
  is_calling_ = true;
}

void WatchedCommunicator::ask(const std::function<void()>& call) {
  begin_to_ask();
  std::string refused;
  try {
    call();
  } catch (const std::exception& error) {
    refused = error.what();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_calling_ = false;
  }
  call_has_returned_.notify_all();
  if (!refused.empty()) {
    abort(refused);
  }
  wait_until_settled();
}

void WatchedCommunicator::wait_until_settled() {
  const auto soon = Clock::now() + kSoon;
  while (!has_settled()) {
    if (Clock::now() < soon) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSettle);
    }
  }
}

// watch() ends what has a problem or is late.
bool WatchedCommunicator::has_settled() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ != nullptr) {
    std::rethrow_exception(error_);
  }
  const Communicator::State state = communicator_->state();
  if (!state.has_settled || !state.problem.empty()) {
    return false;
  }
  asked_.reset();
  return true;
}

void WatchedCommunicator::expect(std::shared_ptr<const Milestone> end) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ == nullptr) {
    under_way_.push_back({std::move(end), Clock::now() + timeout_});
  }
}

std::exception_ptr WatchedCommunicator::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void WatchedCommunicator::abort(const std::string& reason) {
  decltype(under_way_) dropped;  // to end last: an event may wait for the device
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (error_ != nullptr) {
      return;
    }
    error_ = std::make_exception_ptr(std::runtime_error(reason));
    dropped.swap(under_way_);
    call_has_returned_.wait_for(lock, longest_call_, [this] { return !is_calling_; });
  }
  communicator_->end();
}

void WatchedCommunicator::give_up_when(std::function<std::string()> reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  find_reason_ = std::move(reason);
}

std::string WatchedCommunicator::find_reason() const {
  std::function<std::string()> find;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    find = find_reason_;
  }
  return find ? find() : "";
}

// Forgets what has ended. A device that is full may answer only when the communicator is ended, for
// which nobody may have to wait for the lock: it is asked without.
std::string WatchedCommunicator::find_problem() {
  std::vector<std::shared_ptr<const Milestone>> seen;  // to end without the lock, as in abort()
  std::unique_lock<std::mutex> lock(mutex_);
  try {
    while (!under_way_.empty()) {
      const Milestone* first = seen.emplace_back(under_way_.front().end).get();
      lock.unlock();
      const bool is_past = first->is_past();
      lock.lock();
      if (!is_past) {
        break;
      }
      if (!under_way_.empty() && under_way_.front().end.get() == first) {
        under_way_.pop_front();
      }
    }
  } catch (const std::exception& error) {
    return error.what();
  }
  if (error_ != nullptr) {
    return "";
  }
  Communicator::State state = is_calling_ ? Communicator::State{} : communicator_->state();
  if (!state.problem.empty()) {
    return std::move(state.problem);
  }
  const bool is_late = (asked_ && Clock::now() >= *asked_) ||
                       (!under_way_.empty() && Clock::now() >= under_way_.front().deadline);
  return is_late ? "not done within " + std::to_string(timeout_.count()) +
                       " ms: a rank is late, has stopped or is elsewhere"
                 : "";
}

void WatchedCommunicator::end_if_needed() {
  std::string problem = find_problem();
  if (problem.empty()) {
    problem = find_reason();
  }
  if (!problem.empty()) {
    abort(problem);
  }
}

void WatchedCommunicator::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!wake_.wait_for(lock, kLook, [this] { return closing_; })) {
    lock.unlock();
    end_if_needed();
    lock.lock();
  }
}

}  // namespace fsdp2::cuda
