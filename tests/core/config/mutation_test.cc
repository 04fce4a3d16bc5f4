// Changed copies of the examples, which are a plan or a ConfigError and nothing else.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "core/config/config_error.h"
#include "core/config/dialects/read_plan.h"
#include "core/config/document.h"
#include "tests/fuzz/mutations.h"

namespace fsdp2::config {
namespace {

// Whether the text makes a plan.
bool makes_plan(const std::string& text) {
  try {
    plan_of(read_yaml(text, "f.yaml"), "");
    return true;
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return false;
  }
}

TEST(MutatedFile, IsAPlanOrAConfigError) {
  for (const std::string name : {"plain", "roll", "mm", "mm_legacy", "train90M_fsdp"}) {
    std::stringstream text;
    text << std::ifstream("examples/yaml/" + name + ".yaml").rdbuf();
    ASSERT_TRUE(makes_plan(text.str())) << name;
    constexpr int kChanges = 1500;
    int plans = 0;
    fuzz::visit_random_changes(text.str(), kChanges,
                               [&](const std::string& changed) { plans += makes_plan(changed); });
    EXPECT_GT(plans, kChanges / 100) << name;
    EXPECT_LT(plans, kChanges) << name;
  }
}

}  // namespace
}  // namespace fsdp2::config
