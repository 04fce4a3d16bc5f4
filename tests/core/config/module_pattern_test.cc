// Patterns of module paths.
#include "core/config/module_pattern.h"

#include <gtest/gtest.h>

#include "core/config/config_error.h"

namespace fsdp2::config {
namespace {

bool matches(const std::string& pattern, const std::string& name) {
  return ModulePattern(pattern).matches(name);
}

TEST(ModulePattern, MatchesTheWholePath) {
  EXPECT_TRUE(matches("model.layers.{*}", "model.layers.0"));
  EXPECT_TRUE(matches("model.layers.{*}", "model.layers.123"));
  EXPECT_FALSE(matches("model.layers.{*}", "model.layers.0.mlp"));
  EXPECT_FALSE(matches("model.layers.{*}", "model.layers.x"));
  EXPECT_FALSE(matches("model.layers.{*}", "model_layers.0"));
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_FALSE(matches("lm_head", "lm_heads"));
  EXPECT_FALSE(matches("lm_head", "a.lm_head"));
}

TEST(ModulePattern, RangesAreInclusive) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(matches("l.{3-12}.x", "l." + std::to_string(i) + ".x"), i >= 3 && i <= 12) << i;
  }
  EXPECT_TRUE(matches("l.{7}", "l.7"));
  EXPECT_FALSE(matches("l.{7}", "l.71"));
}

TEST(ModulePattern, StarsAndQuestionMarksMatchLetters) {
  EXPECT_TRUE(matches("*.mlp", "model.layers.3.mlp"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a.b.b.c"));
  EXPECT_FALSE(matches("a*b*c", "a.b.b"));
  EXPECT_TRUE(matches("*{3-5}", "l15"));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_TRUE(matches("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a') + "b"));
  EXPECT_FALSE(matches("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(200, 'a')));
  EXPECT_TRUE(matches("a?c", "abc"));
  EXPECT_FALSE(matches("a?c", "ac"));
}

TEST(ModulePattern, OtherBracesAreRefused) {
  for (const char* wrong : {"a.{x}", "a.{1,2}", "a.{", "a.{}", "a.{1-}", "a.{99999999999}"}) {
    EXPECT_THROW(ModulePattern{wrong}, ConfigError) << wrong;
  }
}

TEST(ModulePattern, SelectsInTheOrderOfTheNamesAndMustMatch) {
  const std::vector<std::string> names = {"a", "a.0", "a.1", "b"};
  EXPECT_EQ(select({"b", "a.{*}"}, names, "x"), (std::vector<std::string>{"a.0", "a.1", "b"}));
  try {
    select({"a.{*}", "c.{*}"}, names, "--freeze");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "--freeze: nothing is called c.{*}; did you mean a.0?");
  }
}

}  // namespace
}  // namespace fsdp2::config
