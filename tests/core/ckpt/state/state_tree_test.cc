// Trees as leaves and back; the rules of flattening are PLN-8 and PLN-9 of the checklist.
#include "core/ckpt/state/state_tree.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using Values = std::vector<std::pair<StatePath, PythonValue>>;

TEST(StateTree, ItemsOfAListMayComeInAnyOrder) {
  const Values values = {{{"a", int64_t{2}}, 2}, {{"a", int64_t{0}}, 0}, {{"a", int64_t{1}}, 1}};
  EXPECT_EQ(make_tree(values), PythonValue(PythonDict{{{"a", PythonList{{0, 1, 2}}}}}));
}

TEST(StateTree, NumbersWithGapsAreKeysOfADict) {
  const Values values = {{{"a", int64_t{0}}, 0}, {{"a", int64_t{1} << 40}, 1}};
  EXPECT_EQ(make_tree(values),
            PythonValue(PythonDict{{{"a", PythonDict{{{0, 0}, {int64_t{1} << 40, 1}}}}}}));
}

TEST(StateTree, PathsThatContradictEachOtherAreRefused) {
  EXPECT_ERROR(make_tree({{{"a"}, 1}, {{"a", "b"}, 2}}), Code::kInvalidArgument, "a.b");
  EXPECT_ERROR(make_tree({{{"a"}, PythonList{{1}}}, {{"a", int64_t{5}}, 2}}),
               Code::kInvalidArgument, "a.5");
  EXPECT_ERROR(make_tree({{{"a", "b"}, 1}, {{"a"}, 2}}), Code::kInvalidArgument,
               "a is there twice");
}

TEST(StateTree, ADictWithAKeyThatIsNoNameIsAValue) {
  const PythonValue tree =
      PythonDict{{{"a", PythonDict{{{PythonTuple{{1, 2}}, 3}}}}, {"b", PythonDict{{{"c", 4}}}}}};
  const std::vector<TreeLeaf> leaves = flatten_tree(tree);
  ASSERT_EQ(leaves.size(), 2U);
  EXPECT_EQ(name_of(leaves[0].path), "a");
  EXPECT_EQ(*leaves[0].value, *find(tree, "a"));
  EXPECT_EQ(name_of(leaves[1].path), "b.c");
}

}  // namespace
}  // namespace fsdp2::ckpt
