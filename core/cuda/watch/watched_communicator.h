// A communicator between devices that nobody waits for longer than a time-out.
//
// Its calls return at once and their work runs on a device. Where a rank is missing that work never
// ends, and whoever waits for the device waits for ever: so a thread looks at what is under way,
// and ends the communicator when something has not ended in time, when it has met an error of its
// own, or when another rank has failed. The device then goes on with whatever is in its buffers;
// error() says why.
//
// A call itself may hang, too: a device takes only so many pieces of work ahead. So no lock is held
// while one is made, and the communicator is ended beneath it if it does not return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace fsdp2::cuda {

// A place in the work of a device. Any thread.
class Milestone {
 public:
  virtual ~Milestone() = default;
  virtual bool is_past() const = 0;  // throws std::exception where the device has failed
};

class Communicator {
 public:
  struct State {
    bool has_settled = true;  // has done what it was asked to, in the background
    std::string problem;      // empty: none
  };

  virtual ~Communicator() = default;
  // Any thread, but one at a time, and not while a call is being made: NCCL finishes in this what
  // the last call has begun in the background.
  virtual State state() = 0;
  // Ends all that is under way, and the communicator: nobody calls anything of it from then on.
  // Called once, by any thread, if need be while another one hangs in a call.
  virtual void end() noexcept = 0;
};

// Any thread; one at a time asks.
class WatchedCommunicator {
 public:
  // longest_call: a call that has not returned by then hangs, for an abort.
  WatchedCommunicator(std::unique_ptr<Communicator> communicator, std::chrono::milliseconds timeout,
                      std::chrono::milliseconds longest_call = std::chrono::seconds(3));
  ~WatchedCommunicator();  // ends it
  WatchedCommunicator(const WatchedCommunicator&) = delete;
  WatchedCommunicator& operator=(const WatchedCommunicator&) = delete;

  // Calls `call`, which asks the communicator for something and throws std::exception if that is
  // refused, and waits until it has settled. Throws error() if there is one by then.
  void ask(const std::function<void()>& call);
  // Whoever has asked says where the work ends.
  void expect(std::shared_ptr<const Milestone> end);
  // Why the communicator was ended; null as long as it is sound.
  std::exception_ptr error() const;
  // It is ended, too, soon after `reason` finds one. May be called by any thread.
  void give_up_when(std::function<std::string()> reason);
  // Ends it; the first reason stays.
  void abort(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    std::shared_ptr<const Milestone> end;
    Clock::time_point deadline;
  };

  void begin_to_ask();
  void wait_until_settled();
  bool has_settled();
  std::string find_problem();
  std::string find_reason() const;
  void end_if_needed();
  void watch();

  const std::unique_ptr<Communicator> communicator_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds longest_call_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the watching thread
  std::condition_variable call_has_returned_;
  bool is_calling_ = false;                 // inside a call
  std::optional<Clock::time_point> asked_;  // until when it may take to settle
  std::deque<UnderWay> under_way_;
  std::function<std::string()> find_reason_;
  std::exception_ptr error_;
  bool closing_ = false;
  std::thread watcher_;
};

}  // namespace fsdp2::cuda
