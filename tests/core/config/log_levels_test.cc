// The levels and categories that --log and FSDP2_LOG have.
#include "core/config/checks/log_levels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/config/config_error.h"
#include "fsdp2/log.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LogLevels, AreThoseOfSavesAndWarningsUnlessNamed) {
  const LogLevels usual = read_log_levels("--log", "");
  EXPECT_EQ(usual.of("comm"), FSDP2_LOG_WARNING);
  EXPECT_EQ(usual.of("checkpoint"), FSDP2_LOG_INFO);
  EXPECT_EQ(usual.lowest(), FSDP2_LOG_INFO);
}

TEST(LogLevels, OfACategoryLeaveTheOthersAsTheyAre) {
  const LogLevels levels = read_log_levels("--log", "comm=debug,checkpoint=off");
  EXPECT_EQ(levels.of("comm"), FSDP2_LOG_DEBUG);
  EXPECT_EQ(levels.of("checkpoint"), FSDP2_LOG_OFF);
  EXPECT_EQ(levels.of("fsdp"), FSDP2_LOG_WARNING);
  EXPECT_EQ(levels.lowest(), FSDP2_LOG_DEBUG);
}

TEST(LogLevels, ForAllAreThoseOfWhatIsNotNamed) {
  const LogLevels levels = read_log_levels("--log", "data=info,error");
  EXPECT_EQ(levels.of("checkpoint"), FSDP2_LOG_ERROR);
  EXPECT_EQ(levels.of("data"), FSDP2_LOG_INFO);
}

TEST(LogLevels, ThatAreNoneNameTheFlagOrVariableAndWhatThereIs) {
  const auto message_of = [](const std::string& text, const char* message) {
    EXPECT_THAT([&] { read_log_levels("FSDP2_LOG", text); },
                ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  message_of("loud",
             "FSDP2_LOG loud: 'loud' is no level: expected debug, info, warning, error or off");
  message_of("com=info", "'com' is no category of the log: expected one of comm, fsdp, products");
  message_of("comm=", "FSDP2_LOG comm=: '' is no level");
  message_of("info,", "is no level");
  message_of("info,debug", "has two levels for all categories");
  message_of("comm=info,comm=off", "has two levels for comm");
}

}  // namespace
}  // namespace fsdp2::config
