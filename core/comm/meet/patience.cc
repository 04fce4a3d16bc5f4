#include "core/comm/meet/patience.h"

#include <algorithm>
#include <cstdint>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/comm/meet/sigpipe.h"

namespace fsdp2 {

namespace {

using StorePtr = c10::intrusive_ptr<c10d::Store>;
using Keys = std::vector<std::string>;
using Value = std::vector<uint8_t>;
using std::chrono::milliseconds;

constexpr milliseconds kShortest{1000};

class PatientStore final : public c10d::Store {
 public:
  PatientStore(Deadline deadline, StorePtr store)
      : Store(store->getTimeout()), deadline_(deadline), store_(std::move(store)) {}

  StorePtr clone() override { return patient_until(deadline_, store_->clone()); }

  void set(const std::string& key, const Value& value) override {
    tell([=](Store& store) { store.set(key, value); });
  }
  Value compareSet(const std::string& key, const Value& expected, const Value& wanted) override {
    return ask<Value>([=](Store& store) { return store.compareSet(key, expected, wanted); });
  }
  Value get(const std::string& key) override {
    return ask<Value>([=](Store& store) { return store.get(key); });
  }
  int64_t add(const std::string& key, int64_t value) override {
    return ask<int64_t>([=](Store& store) { return store.add(key, value); });
  }
  bool deleteKey(const std::string& key) override {
    return ask<bool>([=](Store& store) { return store.deleteKey(key); });
  }
  bool check(const Keys& keys) override {
    return ask<bool>([=](Store& store) { return store.check(keys); });
  }
  int64_t getNumKeys() override {
    return ask<int64_t>([](Store& store) { return store.getNumKeys(); });
  }
  void wait(const Keys& keys) override {
    tell([=](Store& store) { store.wait(keys); });
  }
  void wait(const Keys& keys, const milliseconds& timeout) override {
    tell([=](Store& store) { store.wait(keys, timeout); });
  }
  void setTimeout(const milliseconds& timeout) override {
    Store::setTimeout(timeout);
    store_->setTimeout(timeout);
  }
  bool hasExtendedApi() const override { return store_->hasExtendedApi(); }
  void append(const std::string& key, const Value& value) override {
    tell([=](Store& store) { store.append(key, value); });
  }
  std::vector<Value> multiGet(const Keys& keys) override {
    return ask<std::vector<Value>>([=](Store& store) { return store.multiGet(keys); });
  }
  void multiSet(const Keys& keys, const std::vector<Value>& values) override {
    tell([=](Store& store) { store.multiSet(keys, values); });
  }

 private:
  template <typename Answer>
  Answer ask(std::function<Answer(Store& store)> question) {
    const Deadline deadline = std::max(deadline_, std::chrono::steady_clock::now() + kShortest);
    auto answer = answer_until(
        deadline, [store = store_, question = std::move(question)] { return question(*store); });
    FSDP2_CHECK(answer.has_value(), Code::kTimeout,
                "the store that the ranks meet at does not answer: the process that keeps it (rank "
                "0, or the launcher) is stopped, or its machine cannot be reached");
    return std::move(*answer);
  }

  void tell(std::function<void(Store& store)> news) {
    ask<bool>([news = std::move(news)](Store& store) {
      news(store);
      return true;
    });
  }

  Deadline deadline_;
  StorePtr store_;
};

}  // namespace

bool run_until(Deadline deadline, std::function<void()> work) {
  const NoSigpipe guard;  // of this thread, which the new one inherits
  std::packaged_task<void()> task(std::move(work));
  std::future<void> done = task.get_future();
  std::thread(std::move(task)).detach();
  if (done.wait_until(deadline) != std::future_status::ready) {
    return false;
  }
  done.get();
  return true;
}

StorePtr patient_until(Deadline deadline, StorePtr store) {
  return c10::make_intrusive<PatientStore>(deadline, std::move(store));
}

}  // namespace fsdp2
