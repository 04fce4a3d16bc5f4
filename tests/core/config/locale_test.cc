// Numbers and letters of files where the host program's locale has others.
#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/config/checks/data_files.h"
#include "core/config/checks/group_rules.h"
#include "core/config/key_table.h"
#include "core/config/locale_free.h"
#include "tests/core/config/plans.h"
#include "tests/support/comma_locale.h"

namespace fsdp2::config {
namespace {

TEST(LocaleFree, ADecimalIsTheWholeTextButForBlanksAroundIt) {
  EXPECT_EQ(decimal_in("1.5e-3"), 1.5e-3);
  EXPECT_EQ(decimal_in("+.5"), 0.5);
  EXPECT_EQ(decimal_in("-5."), -5.0);
  EXPECT_EQ(decimal_in(" 1.5"), 1.5);
  EXPECT_EQ(decimal_in("\t+1.5 "), 1.5);
  for (const std::string& text :
       std::vector<std::string>{"", " ", "+", "+ 1", "+-1", "1,5", "1 5", "1.5 x", "1.5x", "1e400",
                                "0x1p3", "inf", "nan"}) {
    EXPECT_EQ(decimal_in(text), std::nullopt) << text;
  }
}

TEST(LocaleFree, NumbersOfListsMayHaveBlanksAroundThem) {
  EXPECT_EQ(read_data_weight(" 0.7 "), 0.7);
  EXPECT_EQ(read_lr_scales("a= 0.5,b=2 ").at(1).factor, 2);
  EXPECT_EQ(LrPlan("a= 0.5").rules_for({"a"}).at(0).factor, 0.5);
}

TEST(LocaleFree, ADecimalIsWrittenAsItIsReadBack) {
  for (const double number :
       {0.1, -2.0, 1e300, 5e-324, std::numeric_limits<double>::max(), 1.0 / 3}) {
    EXPECT_EQ(decimal_in(decimal_text(number)), number) << decimal_text(number);
  }
  EXPECT_EQ(decimal_text(0.5), "0.5");
}

TEST(LocaleFree, LowerCaseIsThatOfAscii) {
  EXPECT_EQ(lower_case("HYBRID_Shard\xC4"), "hybrid_shard\xC4");
}

// The locale of a host program, for as long as this lives.
class CommaLocale {
 public:
  CommaLocale() : is_set_(set_comma_locale(::testing::TempDir().c_str()) != 0) {}
  ~CommaLocale() { std::setlocale(LC_NUMERIC, "C"); }

  bool is_set() const { return is_set_; }

 private:
  bool is_set_;
};

TEST(LocaleFree, AHostThatWritesCommasChangesNoNumberOfAPlan) {
  const std::string text =
      "lr: 0.5\nbeta2: 1.25e-1\nlr_scale: 'a=0.5'\nlr_plan: 'b=0.25'\ndata_weights: '0.7,0.3'\n"
      "config_overrides: {rope_theta: 0.5}\n";
  const Plan usual = plan_from(text);
  const CommaLocale locale;
  ASSERT_TRUE(locale.is_set());
  const Plan plan = plan_from(text);
  EXPECT_EQ(plan.options.lr, 0.5);
  EXPECT_EQ(plan.options.beta2, 0.125);
  EXPECT_EQ(plan.text(), usual.text());
  EXPECT_EQ(plan.shared_text(), usual.shared_text());
  EXPECT_EQ(plan_from(plan.text()).options.lr, 0.5);
  EXPECT_EQ(read_lr_scales(plan.options.lr_scale).at(0).factor, 0.5);
  EXPECT_EQ(LrPlan(plan.options.lr_plan).rules_for({"b"}).at(0).factor, 0.25);
  EXPECT_EQ(read_data_weight("0.7"), 0.7);
  EXPECT_THROW(read_data_weight("0,7"), ConfigError);
}

}  // namespace
}  // namespace fsdp2::config
