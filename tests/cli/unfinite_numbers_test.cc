// Numbers that are not finite, as programs and people read them of a run.
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "cli/train/evaluation.h"
#include "cli/train/metrics/metrics.h"
#include "cli/train/metrics/metrics_table.h"
#include "tests/cli/process.h"

namespace fsdp2::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNegativeNaN = -std::numeric_limits<double>::quiet_NaN();

// A step of which both numbers are ruined.
nlohmann::ordered_json ruined_step() {
  return {{"event", "step"}, {"step", 0}, {"loss", kNegativeNaN}, {"grad_norm", -kInfinity}};
}

TEST(UnfiniteNumbers, AreWordsInTheTable) {
  const std::string path = test::empty_directory() + "/m.csv";
  MetricsTable(path, 0).write(ruined_step());
  EXPECT_EQ(test::lines_of(test::read_file(path)).back(), "0,nan,,,-inf,,,,,,,,,,");
}

TEST(UnfiniteNumbers, AreNullInJsonLines) {
  const std::string path = test::empty_directory() + "/m.jsonl";
  Metrics(path, 0).write(ruined_step());
  EXPECT_EQ(test::read_file(path), R"({"event":"step","step":0,"loss":null,"grad_norm":null})"
                                   "\n");
}

TEST(UnfiniteNumbers, AreWordsForPeople) {
  fsdp2_evaluation evaluation{};
  evaluation.loss = kNegativeNaN;
  EXPECT_EQ(told(evaluation, 4).find("step 5: evaluation loss nan over "), 0U);
}

}  // namespace
}  // namespace fsdp2::cli
