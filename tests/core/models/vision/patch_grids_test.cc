// Patches of images: their order, and which see each other.
#include "core/models/vision/patch_grids.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "tests/support/errors.h"

namespace fsdp2::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<int64_t>();
  return {data, data + flat.numel()};
}

at::Tensor grid_tensor(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong).view({-1, 3});
}

TEST(PatchGrids, PatchesOfASquareLieTogether) {
  const at::Tensor places = places_in_frames({{1, 2, 4}, {2, 2, 2}}, 2);
  EXPECT_THAT(numbers_of(places[0]), ElementsAre(0, 0, 1, 1, 0, 0, 1, 1,  // the first grid
                                                 0, 0, 1, 1, 0, 0, 1, 1));
  EXPECT_THAT(numbers_of(places[1]), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3,  //
                                                 0, 1, 0, 1, 0, 1, 0, 1));
}

TEST(PatchGrids, EachFrameEndsWhereItsPatchesDo) {
  EXPECT_THAT(numbers_of(frame_boundaries({{2, 4, 2}, {1, 2, 6}})), ElementsAre(0, 8, 16, 28));
}

// 3 x 5 squares in windows of 2 x 2: the last row and the last column are of halves.
TEST(PatchGrids, WindowsAtTheEdgesAreSmaller) {
  const Windows windows = windows_of({{1, 6, 10}}, 2, 2);
  EXPECT_THAT(numbers_of(windows.order),
              ElementsAre(0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14));
  EXPECT_THAT(numbers_of(windows.boundaries), ElementsAre(0, 16, 32, 40, 48, 56, 60));
}

TEST(PatchGrids, WindowsKeepToTheirFrame) {
  const Windows windows = windows_of({{2, 4, 4}, {1, 2, 2}}, 2, 4);
  EXPECT_THAT(numbers_of(windows.order), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(numbers_of(windows.boundaries), ElementsAre(0, 16, 32, 36));
}

TEST(PatchGrids, WayBackUndoesTheOrder) {
  const Windows windows = windows_of({{1, 6, 10}, {2, 4, 6}}, 2, 2);
  EXPECT_TRUE(windows.order.index_select(0, windows.back)
                  .equal(at::arange(windows.order.numel(), at::kLong)));
}

TEST(PatchGrids, ReadsGridsOfAnyIntegers) {
  const PatchGrids grids = read_grids(grid_tensor({1, 4, 2, 3, 2, 2}).to(at::kInt), 20, 2, "grids");
  ASSERT_EQ(grids.size(), 2);
  EXPECT_EQ(grids[1].frames, 3);
  EXPECT_EQ(grids[1].patches(), 12);
}

TEST(PatchGrids, SaysWhichGridIsWrong) {
  const auto message = [](const at::Tensor& grids, int64_t patches) {
    return message_of_error([&] { read_grids(grids, patches, 2, "image_grid_thw"); },
                            Code::kInvalidArgument);
  };
  EXPECT_THAT(message(grid_tensor({1, 2, 2, 1, 3, 2}), 10), HasSubstr("got 1 x 3 x 2 in row 1"));
  EXPECT_THAT(message(grid_tensor({1, 2, 2, 0, 2, 2}), 4), HasSubstr("got 0 x 2 x 2 in row 1"));
  EXPECT_THAT(message(grid_tensor({1, 2, 2, 1, 2, 4}), 11),
              HasSubstr("up to row 1 (1 x 2 x 4) have 12 patches, but there are pixels of 11"));
  EXPECT_THAT(message(grid_tensor({1, 2, 2}), 5),
              HasSubstr("the 1 grids have 4 patches together, but there are pixels of 5"));
  EXPECT_THAT(message(at::ones({1, 3}), 4), HasSubstr("got Float [1, 3]"));
  EXPECT_THAT(message(at::ones({1, 2}, at::kLong), 4), HasSubstr("got Long [1, 2]"));
  EXPECT_THAT(message(at::ones({0, 3}, at::kLong), 0), HasSubstr("got Long [0, 3]"));
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(message(grid_tensor({most, most, most}), 4), HasSubstr("from 1 to 1048576"));
}

}  // namespace
}  // namespace fsdp2::models
