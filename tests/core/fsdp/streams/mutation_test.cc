// Without any one of its waits, a step is out of order, and the recording device says so.
//
// A wait that no work came to rely on before the stream's next one cannot be missed: a unit that is
// freed has the gathers wait for what computed with it, since a gather may come next; where another
// unit is freed first, that wait covers it. Who frees a unit does not know what comes next.
//
// Three kinds of scenarios are left out, since some of their waits are there for others: a unit
// that this rank does not use is waited for all the same; shards in the host's memory are written
// to without a stream; and what a failure has left under way is not known, so all streams are
// waited for.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/core/fsdp/streams/scenario.h"

namespace fsdp2::fsdp {
namespace {

class Mutation : public ::testing::TestWithParam<Scenario> {};

TEST_P(Mutation, AWaitThatIsLeftOutIsReported) {
  const Recording whole = record(GetParam());
  size_t left_out = 0;
  std::vector<std::string> missed;
  for (size_t i = whole.waits_before[1]; i < whole.waits_before[2]; ++i) {
    const recording::StreamWait& wait = whole.waits[i];
    if (!wait.relied_on) {
      continue;
    }
    const Recording without = record(GetParam(), i);
    EXPECT_EQ(without.waits.size(), whole.waits.size());
    if (without.problems.empty()) {
      missed.push_back(wait.what);
    }
    ++left_out;
  }
  EXPECT_EQ(missed.size(), GetParam().spare_waits) << ::testing::PrintToString(missed);
  EXPECT_GT(left_out, 10);
}

std::vector<Scenario> scenarios_that_need_all_waits() {
  std::vector<Scenario> chosen;
  for (const Scenario& scenario : scenarios()) {
    const bool uses_all = scenario.blocks.size() == static_cast<size_t>(scenario.model.blocks);
    if (uses_all && scenario.ranks > 1 && !scenario.policy.offload.to_cpu &&
        scenario.fails == Scenario::Fails::kNowhere) {
      chosen.push_back(scenario);
    }
  }
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, Mutation, ::testing::ValuesIn(scenarios_that_need_all_waits()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fsdp2::fsdp
