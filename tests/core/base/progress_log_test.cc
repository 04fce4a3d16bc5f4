#include "core/base/progress_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/log.h"

namespace fsdp2 {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> messages_of_two_steps(std::chrono::milliseconds every) {
  std::vector<std::string> messages;
  set_log_sink(LogLevel::kInfo,
               [&](const LogRecord& record) { messages.push_back(record.message); });
  const LogScope scope;
  ProgressLog progress("test", "writing x", 4e9, every);
  progress.add(1'000'000'000);
  progress.add(2'500'000'000);
  set_log_sink(LogLevel::kWarning, {});
  return messages;
}

TEST(ProgressLog, TellsHowMuchIsDone) {
  EXPECT_THAT(messages_of_two_steps(std::chrono::milliseconds(0)),
              ElementsAre("writing x: 1.0 of 4.0 GB", "writing x: 3.5 of 4.0 GB"));
}

TEST(ProgressLog, IsSilentOnShortWork) {
  EXPECT_THAT(messages_of_two_steps(std::chrono::hours(1)), IsEmpty());
}

}  // namespace
}  // namespace fsdp2
