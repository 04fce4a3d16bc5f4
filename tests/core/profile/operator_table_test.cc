// What a span counts for: by itself, with what is inside, and inside another of its own name.
#include "core/profile/operator_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp2::profile {
namespace {

using ::testing::HasSubstr;

Span host(const std::string& name, int64_t start, int64_t end, uint64_t track = 1) {
  return {name, true, track, start, end};
}

const Row& row_of(const std::vector<Row>& rows, const std::string& name) {
  for (const Row& row : rows) {
    if (row.name == name) {
      return row;
    }
  }
  throw std::out_of_range(name);
}

TEST(OperatorTable, SelfTimeIsWithoutWhatRanInside) {
  const auto rows = operator_rows({host("linear", 0, 100), host("t", 10, 20), host("mm", 20, 90)});
  EXPECT_EQ(row_of(rows, "linear").self_ns, 20);
  EXPECT_EQ(row_of(rows, "linear").total_ns, 100);
  EXPECT_EQ(row_of(rows, "mm").self_ns, 70);
}

TEST(OperatorTable, OrderOfEventsDoesNotMatter) {
  const auto rows = operator_rows({host("mm", 20, 90), host("linear", 0, 100), host("t", 10, 20)});
  EXPECT_EQ(row_of(rows, "linear").self_ns, 20);
}

TEST(OperatorTable, SelfTimesAddUpToTheTime) {
  const auto rows = operator_rows({host("a", 0, 50), host("b", 0, 50), host("c", 10, 20),
                                   host("a", 60, 70), host("b", 0, 40, 2), host("a", 40, 41, 2)});
  int64_t self = 0;
  for (const Row& row : rows) {
    self += row.self_ns;
  }
  EXPECT_EQ(self, 50 + 10 + 40 + 1);
}

TEST(OperatorTable, ASpanInsideOneOfItsOwnNameIsNotCountedTwice) {
  const auto rows = operator_rows({host("call", 0, 100), host("call", 10, 60)});
  EXPECT_EQ(row_of(rows, "call").calls, 2);
  EXPECT_EQ(row_of(rows, "call").total_ns, 100);
  EXPECT_EQ(row_of(rows, "call").self_ns, 100);
}

TEST(OperatorTable, ASpanThatJutsOutCountsUpToTheEndOfTheOneAroundIt) {
  const auto rows = operator_rows({host("a", 0, 50), host("b", 40, 70)});
  EXPECT_EQ(row_of(rows, "a").self_ns, 40);
  EXPECT_EQ(row_of(rows, "b").self_ns, 10);
}

TEST(OperatorTable, RowsStandByTheirSelfTimeAndTheHostsFirst) {
  const std::vector<Row> rows =
      operator_rows({host("short", 0, 1), host("long", 1, 9), {"kernel", false, 7, 0, 100}});
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].name, "long");
  EXPECT_EQ(rows[1].name, "short");
  EXPECT_EQ(rows[2].name, "kernel");
  EXPECT_THAT(operator_table(rows), HasSubstr("on the device\nkernel "));
  EXPECT_THAT(operator_table(rows), HasSubstr(" 88.9 "));  // 8 of the host's 9
}

TEST(OperatorTable, OfNothingIsItsHeading) {
  EXPECT_EQ(operator_table(operator_rows({})).rfind("name", 0), 0U);
}

}  // namespace
}  // namespace fsdp2::profile
