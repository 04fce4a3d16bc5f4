// `fsdp2 train --trace`: a trace in Chrome's format of all ranks, and a table of operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Arguments = std::vector<std::string>;

constexpr int kSteps = 2;  // that are traced

Arguments traced(const std::string& folder, const Arguments& more = {}) {
  const Arguments arguments = {"--steps",       "5",   "--trace",          folder,
                               "--trace-steps", "2:3", "--product-engine", "mkl"};
  return joined(joined(golden_inputs("tiny-llama"), arguments), more);
}

// What Chrome's trace format says of an event.
void expect_event(const Json& event) {
  static const std::set<std::string> kPhases = {"X", "M", "i", "s", "f", "t", "C", "B", "E"};
  const std::string phase = event.at("ph");
  ASSERT_TRUE(kPhases.count(phase) > 0) << event;
  ASSERT_TRUE(event.at("name").is_string()) << event;
  ASSERT_TRUE(event.at("pid").is_number_integer()) << event;
  if (phase == "X") {
    ASSERT_TRUE(event.at("tid").is_number_integer() || event.at("tid").is_string()) << event;
    ASSERT_GE(event.at("ts").get<double>(), 0) << event;
    ASSERT_GE(event.at("dur").get<double>(), 0) << event;
  }
}

struct Range {
  double start, end;
  std::string name;
};

// The ranges of FSDP by rank, in the order of time.
std::map<std::string, std::vector<Range>> phases_of(const Json& trace) {
  std::map<int, std::string> ranks;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") {
      ranks[event.at("pid")] = event.at("args").at("name");
    }
  }
  std::map<std::string, std::vector<Range>> phases;
  for (const Json& event : trace.at("traceEvents")) {
    const std::string name = event.at("name");
    if (event.at("ph") == "X" && name.rfind("FSDP::", 0) == 0) {
      const double start = event.at("ts");
      phases[ranks.at(event.at("pid"))].push_back(
          {start, start + event.at("dur").get<double>(), name});
    }
  }
  for (auto& [rank, ranges] : phases) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& a, const Range& b) { return a.start < b.start; });
  }
  return phases;
}

std::vector<double> starts_of(const std::vector<Range>& ranges, const std::string& name) {
  std::vector<double> starts;
  for (const Range& range : ranges) {
    if (range.name == name) {
      starts.push_back(range.start);
    }
  }
  return starts;
}

TEST(Trace, HasThePhasesOfAllUnitsOnAllRanks) {
  const std::string folder = empty_directory() + "/new/trace";
  const Training training = train(2, traced(folder));
  ASSERT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  EXPECT_THAT(training.outcome.err, HasSubstr("wrote " + folder + "/trace.json: steps 2 to 3\n"));
  const Json trace = Json::parse(read_file(folder + "/trace.json"));
  for (const Json& event : trace.at("traceEvents")) {
    expect_event(event);
  }
  const auto phases = phases_of(trace);
  ASSERT_EQ(phases.size(), 2U);
  for (const char* rank : {"rank 0", "rank 1"}) {
    const std::vector<Range>& ranges = phases.at(rank);
    for (const char* name :
         {"FSDP::root_pre_forward", "FSDP::pre_forward", "FSDP::all_gather",
          "FSDP::all_gather (model.layers.0)", "FSDP::all_gather_copy_out (model.layers.1)",
          "FSDP::pre_forward (model.layers.0)", "FSDP::post_forward (model.layers.1)",
          "FSDP::pre_backward (model.layers.1)", "FSDP::post_backward_reduce (model.layers.0)",
          "FSDP::root_post_backward_callback"}) {
      EXPECT_GE(starts_of(ranges, name).size(), static_cast<size_t>(kSteps)) << name;
    }
    EXPECT_EQ(starts_of(ranges, "FSDP::root_pre_forward").size(), static_cast<size_t>(kSteps));
    // Forward and backward each gather a layer that is freed after forward.
    EXPECT_EQ(starts_of(ranges, "FSDP::all_gather (model.layers.0)").size(), 2U * kSteps);
  }
}

// A step waits for both ranks, so that neither begins one before the other has ended the last.
TEST(Trace, HasAllRanksOnOneClock) {
  const std::string folder = empty_directory();
  ASSERT_EQ(train(2, traced(folder)).outcome.exit_code, 0);
  const auto phases = phases_of(Json::parse(read_file(folder + "/trace.json")));
  const std::string begin = "FSDP::root_pre_forward", end = "FSDP::root_post_backward_callback";
  for (const auto& [one, other] : {std::make_pair("rank 0", "rank 1"), {"rank 1", "rank 0"}}) {
    const auto begins = starts_of(phases.at(one), begin);
    const auto ends = starts_of(phases.at(other), end);
    ASSERT_EQ(begins.size(), 2U);
    ASSERT_EQ(ends.size(), 2U);
    EXPECT_LT(begins[0], ends[0]);
    EXPECT_LT(ends[0], begins[1]);
    EXPECT_LT(begins[1], ends[1]);
  }
}

TEST(Trace, ComesWithATableOfOperatorsByTheirOwnTime) {
  const std::string folder = empty_directory();
  ASSERT_EQ(train(2, traced(folder)).outcome.exit_code, 0);
  for (const char* file : {"/operators-rank0.txt", "/operators-rank1.txt"}) {
    std::vector<double> self;
    double percent = 0;
    std::set<std::string> names;
    for (const std::string& line : lines_of(read_file(folder + file))) {
      std::istringstream columns(line.substr(line.rfind("  ", 62)));
      double calls = 0, self_ms = 0, part = 0;
      if (columns >> calls >> self_ms >> part) {
        names.insert(line.substr(0, line.find(' ')));
        self.push_back(self_ms);
        percent += part;
      }
    }
    EXPECT_GT(self.size(), 20U);
    EXPECT_TRUE(std::is_sorted(self.rbegin(), self.rend()));
    EXPECT_NEAR(percent, 100, 3);  // each is rounded
    EXPECT_TRUE(names.count("aten::embedding") == 1) << read_file(folder + file);
  }
}

TEST(Trace, EndsWithTheRun) {
  const std::string folder = empty_directory();
  const Training training = train(1, traced(folder, {"--trace-steps", "3:100"}));
  EXPECT_EQ(training.outcome.exit_code, 0);
  EXPECT_THAT(training.outcome.err, HasSubstr("trace.json: steps 3 to 4\n"));
}

TEST(Trace, DoesNotChangeWhatIsTrained) {
  const Training plain =
      train(1, joined(golden_inputs("tiny-llama"), {"--steps", "5", "--product-engine", "mkl"}));
  const Training with_trace = train(1, traced(empty_directory()));
  EXPECT_EQ(as_lists(plain.steps), as_lists(with_trace.steps));
}

TEST(Trace, MistakesAreOneLine) {
  const auto told = [](const Arguments& more) { return train(1, traced("/tmp", more)).outcome; };
  EXPECT_EQ(told({"--trace-steps", "5:6"}).err,
            "fsdp2 train: --trace-steps 5:6: the run ends before step 5, as steps count from 0\n");
  for (const char* steps : {"3:2", "x", "1:", ":", "-1:2", "1:2:3", "99999999999999999999"}) {
    const Outcome outcome = told({"--trace-steps", steps});
    EXPECT_EQ(outcome.exit_code, 2) << steps;
    EXPECT_THAT(outcome.err, HasSubstr(": expected FIRST:LAST, two numbers of steps"));
  }
  const std::string file = empty_directory() + "/file";
  write_file(file, "");
  EXPECT_THAT(told({"--trace", file}).err, HasSubstr("--trace " + file + ": "));
  EXPECT_EQ(told({"--trace", file + "\nx"}).err,
            "fsdp2 train: --trace: expected a path without line breaks, which LibTorch's profiler "
            "drops\n");
}

// There is room in a path for the name of the trace, but not for all names that are needed.
TEST(Trace, WhoseNamesAreTooLongIsRefusedBeforeTheFirstStep) {
  constexpr size_t kRoom = PATH_MAX - 1 - std::string_view("/trace-rank0.json").size();
  constexpr size_t kName = 200;
  const std::string top = empty_directory() + "/long";
  std::string folder = top;
  while (folder.size() + 1 + kName + 1 < kRoom) {
    folder += "/" + std::string(kName, 'x');
  }
  folder += "/" + std::string(kRoom - folder.size() - 1, 'x');
  const Training training = train(1, traced(folder));
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_TRUE(training.steps.empty());
  EXPECT_THAT(training.outcome.err,
              AllOf(HasSubstr("--trace " + folder), HasSubstr("File name too long")));
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace fsdp2::test
