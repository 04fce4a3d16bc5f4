#include "core/base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace fsdp2 {
namespace {

class Log : public ::testing::Test {
 protected:
  void TearDown() override { set_log_sink(LogLevel::kWarning, {}); }

  void listen(LogLevel level) {
    set_log_sink(level, [this](const LogRecord& record) {
      ranks_.push_back(record.rank);
      messages_.push_back(record.message);
    });
  }

  std::vector<int32_t> ranks_;
  std::vector<std::string> messages_;
};

TEST_F(Log, RecordsBelowTheLevelAreDropped) {
  const LogScope scope;
  listen(LogLevel::kInfo);
  log(LogLevel::kDebug, "test", "no");
  log(LogLevel::kInfo, "test", "yes {}", 1);
  EXPECT_EQ(messages_, std::vector<std::string>{"yes 1"});
}

TEST_F(Log, RecordsCarryTheScopesRank) {
  listen(LogLevel::kInfo);
  {
    LogScope scope;
    scope.set_rank(3);
    log(LogLevel::kInfo, "test", "a");
  }
  const LogScope scope;
  log(LogLevel::kInfo, "test", "b");
  EXPECT_EQ(ranks_, (std::vector<int32_t>{3, -1}));
}

TEST_F(Log, RecordsOfOtherThreadsWaitForTheNextScope) {
  listen(LogLevel::kInfo);
  std::thread([] { log(LogLevel::kInfo, "test", "from inside"); }).join();
  EXPECT_TRUE(messages_.empty());
  const LogScope scope;
  EXPECT_EQ(messages_, std::vector<std::string>{"from inside"});
}

TEST_F(Log, TooManyWaitingRecordsAreCounted) {
  listen(LogLevel::kInfo);
  std::thread([] {
    for (int i = 0; i < 1003; ++i) {
      log(LogLevel::kInfo, "test", "{}", i);
    }
  }).join();
  const LogScope scope;
  ASSERT_EQ(messages_.size(), 1001u);
  EXPECT_EQ(messages_.back(), "3 records of internal threads were dropped");
}

TEST_F(Log, AReplacedSinkIsLetGo) {
  const auto token = std::make_shared<int>(0);
  set_log_sink(LogLevel::kInfo, [token](const LogRecord&) {});
  EXPECT_EQ(token.use_count(), 2);
  set_log_sink(LogLevel::kInfo, [](const LogRecord&) {});
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(Log, ASinkThatLogsDoesNotRecurse) {
  int calls = 0;
  set_log_sink(LogLevel::kInfo, [&calls](const LogRecord&) {
    ++calls;
    if (calls == 1) {
      EXPECT_TRUE(inside_log_sink());
      log(LogLevel::kInfo, "test", "inner");
    }
  });
  {
    const LogScope scope;
    log(LogLevel::kInfo, "test", "outer");
    EXPECT_EQ(calls, 1);
  }
  EXPECT_FALSE(inside_log_sink());
  const LogScope scope;
  EXPECT_EQ(calls, 2);
}

TEST(LogDefault, GoesToStandardErrorFromWarningOn) {
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "test", "quiet");
  log(LogLevel::kWarning, "test", "loud");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "fsdp2 warning [test] loud\n");
}

}  // namespace
}  // namespace fsdp2
