#include "core/train/data/read_ahead.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "core/train/data/data_loader.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using std::chrono::milliseconds;

// Window w is [w]; it may be slow, wait to be let go, or fail.
class Numbers : public WindowSource {
 public:
  const std::string& path() const override { return path_; }
  int64_t window_count(int64_t /*sequence_length*/) const override { return 1000; }
  TokenBatch windows(const std::vector<int64_t>& windows, int64_t /*length*/) const override {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      ++calls_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !is_held_; });
    }
    FSDP2_CHECK(windows.front() != bad_, Code::kCorruptData, "window {} is bad", bad_.load());
    const at::Tensor tensor = at::tensor(windows, at::device(at::kCPU).dtype(at::kLong));
    return {tensor, tensor, tensor};
  }
  std::string extent() const override { return ""; }

  void hold(bool is_held) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }
  // False: it has not been asked so many times within a minute.
  bool wait_for_calls(int calls) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return calls_ >= calls; });
  }
  int calls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return calls_;
  }
  std::atomic<int64_t> bad_ = -1;

 private:
  const std::string path_ = "numbers";
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int calls_ = 0;
  bool is_held_ = false;
};

class ReadAheadTest : public ::testing::Test {
 protected:
  DataLoader loader(int64_t read_ahead) const {
    DataLoaderOptions options;
    options.sequence_length = 1;
    options.read_ahead = read_ahead;
    return {numbers_, options};
  }
  static int64_t next(DataLoader& loader) { return loader.next().inputs.item<int64_t>(); }

  std::shared_ptr<Numbers> numbers_ = std::make_shared<Numbers>();
};

TEST_F(ReadAheadTest, PreparesSoManyBatchesAndNoMore) {
  DataLoader own = loader(3);
  EXPECT_EQ(next(own), 0);
  EXPECT_TRUE(numbers_->wait_for_calls(4));
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(numbers_->calls(), 4);
  EXPECT_EQ(next(own), 1);
  EXPECT_TRUE(numbers_->wait_for_calls(5));
}

TEST_F(ReadAheadTest, PositionIsThatOfWhatWasTaken) {
  DataLoader own = loader(8);
  next(own);
  next(own);
  EXPECT_TRUE(numbers_->wait_for_calls(10));
  EXPECT_EQ(own.position().window, 2);
  EXPECT_EQ(own.steps(), 2);
  DataLoader other = loader(2);
  next(other);
  other.seek(own.position());
  EXPECT_EQ(next(other), 2);
  other.seek_step(40);
  EXPECT_EQ(next(other), 40);
}

TEST_F(ReadAheadTest, ErrorComesWithItsBatchAndThatIsTriedAgain) {
  numbers_->bad_ = 2;
  DataLoader own = loader(4);
  EXPECT_EQ(next(own), 0);
  EXPECT_TRUE(numbers_->wait_for_calls(5));
  EXPECT_EQ(next(own), 1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(error_of([&] { next(own); }).message(), "window 2 is bad");
    EXPECT_EQ(own.position().window, 2);
  }
  numbers_->bad_ = -1;
  EXPECT_EQ(next(own), 2);
  EXPECT_EQ(next(own), 3);
}

TEST_F(ReadAheadTest, EndsWhileABatchIsInTheMaking) {
  numbers_->hold(true);
  {
    ReadAhead ahead;
    ahead.add([this] { return numbers_->windows({0}, 1); });
    EXPECT_TRUE(numbers_->wait_for_calls(1));
    // When the end has dropped what was not begun, the first one is let go, which it waits for.
    std::shared_ptr<void> dropped(nullptr, [this](void*) { numbers_->hold(false); });
    for (int64_t i = 1; i < 3; ++i) {
      ahead.add([this, i, dropped] { return numbers_->windows({i}, 1); });
    }
    dropped.reset();
  }
  EXPECT_EQ(numbers_->calls(), 1);  // what was not begun was not done
}

// The child has no reading thread, whatever that of the parent was doing at the fork: it reads with
// one of its own, and ends.
TEST_F(ReadAheadTest, GoesOnInAFork) {
  DataLoader own = loader(3);
  EXPECT_EQ(next(own), 0);
  EXPECT_TRUE(numbers_->wait_for_calls(4));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    bool is_right = false;
    {
      DataLoader inherited = std::move(own);
      is_right = next(inherited) == 1 && next(inherited) == 2;
    }
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(next(own), 1);
}

}  // namespace
}  // namespace fsdp2::train
