// Texts of config.json, good and bad.
#include "core/models/config/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/support/errors.h"

namespace fsdp2::models {
namespace {

using ::testing::HasSubstr;

TEST(ConfigReader, RefusesWhatIsNoObject) {
  for (const char* text : {"{\"model_type\": ", "[1, 2]", ""}) {
    EXPECT_THAT(message_of_error([&] { ConfigReader{text}; }, Code::kInvalidArgument),
                HasSubstr("config.json"));
  }
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(message_of_error([&] { ConfigReader{"{\"model_type\": " + deep + "}"}; },
                               Code::kInvalidArgument),
              HasSubstr("nested"));
}

// It takes no time that anyone would notice.
TEST(ConfigReader, TakesAListOfManyObjects) {
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) {
    objects += "{},";
  }
  EXPECT_TRUE(
      ConfigReader("{\"model_type\": null, \"a\": [" + objects + "{}]}").is_null("model_type"));
}

TEST(ConfigReader, TellsOfBadJsonInUtf8) {
  for (const std::string text : {"\xF0\x9F\x98\x80", "{\"key\": \xC3\xA9}"}) {
    const std::string message =
        message_of_error([&] { ConfigReader{text}; }, Code::kInvalidArgument);
    EXPECT_THAT(message, HasSubstr("last read: "));
    EXPECT_TRUE(is_utf8(message)) << message;
  }
}

}  // namespace
}  // namespace fsdp2::models
