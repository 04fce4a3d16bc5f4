// Hostile texts on the smallest stack that a thread may have which calls the library (fsdp2.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <string>
#include <vector>

#include "core/config/checks/group_rules.h"
#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/document.h"

namespace fsdp2::config {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSmallestStack = 1 << 20;
#else
constexpr size_t kSmallestStack = 128 << 10;
#endif

void* call(void* body) {
  (*static_cast<const std::function<void()>*>(body))();
  return nullptr;
}

// What is wrong in `body` on such a thread; "": nothing.
std::string mistake_of(const std::function<void()>& body) {
  std::string mistake;
  std::function<void()> caught = [&] {
    try {
      body();
    } catch (const ConfigError& error) {
      mistake = error.what();
    }
  };
  pthread_attr_t attributes;
  pthread_t thread;
  EXPECT_EQ(pthread_attr_init(&attributes), 0);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, kSmallestStack), 0);
  EXPECT_EQ(pthread_create(&thread, &attributes, call, &caught), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  EXPECT_EQ(pthread_attr_destroy(&attributes), 0);
  return mistake;
}

std::string repeated(const std::string& part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) {
    text += part;
  }
  return text;
}

std::string mistake_in_rule(const std::string& expression) {
  return mistake_of([&] {
    const auto rules = LrPlan(expression + "=2").rules_for({std::string(100, 'a')});
    EXPECT_EQ(rules.size(), 1U);
  });
}

std::string in_parentheses(size_t depth, const std::string& open) {
  return repeated(open, depth) + "a" + repeated(")", depth);
}

TEST(SmallStack, SufficesForTheLargestExpressions) {
  const std::vector<std::string> largest = {in_parentheses(50, "("),   in_parentheses(50, "(?:"),
                                            in_parentheses(50, "(?="), repeated("a*", 500),
                                            repeated("a|", 499) + "a", "(a?){1,90}",
                                            "((a?){1,9}){1,6}",        "a" + repeated("b?", 499)};
  for (const std::string& expression : largest) {
    EXPECT_EQ(mistake_in_rule(expression), "") << expression;
  }
}

TEST(SmallStack, LargerExpressionsAreRefused) {
  EXPECT_THAT(mistake_in_rule(in_parentheses(400, "(")),
              HasSubstr("expected at most 50 parentheses that open, found 400"));
  EXPECT_THAT(mistake_in_rule(in_parentheses(100000, "(")),
              HasSubstr("at most 1000 bytes, found one of "));
  for (const std::string expression :
       {"(a?){1,10000}", "(a?){10000,}", "((((a?){9}){9}){9}){9}", "(a?){99999999999999999999}"}) {
    EXPECT_THAT(mistake_in_rule(expression),
                HasSubstr("expected counts such as {1,3} that, written out, leave it at most 1000"))
        << expression;
  }
}

TEST(SmallStack, SufficesForDeepFilesAndLongLists) {
  const auto plan = [](const std::string& text) {
    return mistake_of([&] { plan_of(read_yaml(text, "f.yaml"), ""); });
  };
  const std::string deep = repeated("{a: ", 62) + "1" + repeated("}", 62);
  EXPECT_EQ(plan("config_overrides: " + deep + "\n"), "");
  EXPECT_THAT(plan("a: " + repeated("[", 100000)), HasSubstr("nested deeper than 64"));
  EXPECT_THAT(plan("lr: " + std::string(100000, '1')), HasSubstr("lr: expected a number"));
  std::string devices = "[0";
  for (int device = 1; device < 10000; ++device) {
    devices += "," + std::to_string(device);
  }
  EXPECT_EQ(plan("actor_train: {strategy_args: {}, device_mapping: '" + devices + "]'}\n"), "");
}

}  // namespace
}  // namespace fsdp2::config
