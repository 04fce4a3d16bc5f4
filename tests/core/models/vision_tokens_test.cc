// Positions of tokens around images and videos: the examples are worked out by hand, after the
// rules of transformers' get_rope_index; tests/parity/vision_language compares with the library
// itself.
#include "core/models/vision_tokens.h"

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

constexpr int64_t kImage = 8;
constexpr int64_t kVideo = 9;

at::Tensor rows_of(const std::vector<int64_t>& numbers, int64_t rows = 1) {
  return at::tensor(numbers, at::kLong).view({rows, -1});
}

std::vector<int64_t> numbers_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  const auto* data = flat.const_data_ptr<int64_t>();
  return {data, data + flat.numel()};
}

VisionTokens images(std::vector<TokenBlock> blocks) {
  return {kImage, "image_grid_thw", std::move(blocks)};
}
VisionTokens videos(std::vector<TokenBlock> blocks) {
  return {kVideo, "video_grid_thw", std::move(blocks)};
}

TEST(VisionTokens, TextGoesOnBehindTheFurthestOfAnImage) {
  const at::Tensor tokens = rows_of({1, 2, 8, 8, 8, 8, 8, 8, 3, 4});
  const at::Tensor positions = positions_around(tokens, {images({{1, 2, 3, 0}})}, {});
  EXPECT_THAT(numbers_of(positions[0]), ElementsAre(0, 1, 2, 2, 2, 2, 2, 2, 5, 6));
  EXPECT_THAT(numbers_of(positions[1]), ElementsAre(0, 1, 2, 2, 2, 3, 3, 3, 5, 6));
  EXPECT_THAT(numbers_of(positions[2]), ElementsAre(0, 1, 2, 3, 4, 2, 3, 4, 5, 6));
}

TEST(VisionTokens, ImagesAreTakenRowByRow) {
  const at::Tensor tokens = rows_of({8, 8, 1, 8, 1, 1, 1, 8, 8, 1}, 2);
  const at::Tensor positions =
      positions_around(tokens, {images({{1, 2, 1, 0}, {1, 1, 1, 0}, {1, 1, 2, 0}})}, {});
  EXPECT_THAT(numbers_of(positions[0]), ElementsAre(0, 0, 2, 3, 4, 0, 1, 2, 2, 4));
  EXPECT_THAT(numbers_of(positions[1]), ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 2, 4));
  EXPECT_THAT(numbers_of(positions[2]), ElementsAre(0, 0, 2, 3, 4, 0, 1, 2, 3, 4));
}

TEST(VisionTokens, FramesOfAVideoAreStepsApart) {
  const at::Tensor tokens = rows_of({1, 9, 9, 9, 9, 1, 8, 1});
  const at::Tensor positions =
      positions_around(tokens, {images({{1, 1, 1, 0}}), videos({{2, 1, 2, 4}})}, {});
  EXPECT_THAT(numbers_of(positions[0]), ElementsAre(0, 1, 1, 5, 5, 6, 7, 8));
  EXPECT_THAT(numbers_of(positions[1]), ElementsAre(0, 1, 1, 1, 1, 6, 7, 8));
  EXPECT_THAT(numbers_of(positions[2]), ElementsAre(0, 1, 2, 1, 2, 6, 7, 8));
}

TEST(VisionTokens, PaddingTakesNoPosition) {
  const at::Tensor tokens = rows_of({0, 0, 1, 8, 8, 1});
  const at::Tensor mask = rows_of({0, 0, 1, 1, 1, 1});
  const at::Tensor positions = positions_around(tokens, {images({{1, 1, 2, 0}})}, mask);
  EXPECT_THAT(numbers_of(positions[0]), ElementsAre(1, 1, 0, 1, 1, 3));
  EXPECT_THAT(numbers_of(positions[2]), ElementsAre(1, 1, 0, 1, 2, 3));
}

TEST(VisionTokens, PackedSequencesCountFromZero) {
  const at::Tensor tokens = rows_of({1, 8, 8, 1, 1, 8, 8, 1});
  const at::Tensor boundaries = at::tensor({0, 4, 8}, at::kLong);
  const at::Tensor positions =
      positions_around(tokens, {images({{1, 1, 2, 0}, {1, 2, 1, 0}})}, boundaries);
  EXPECT_THAT(numbers_of(positions[0]), ElementsAre(0, 1, 1, 3, 0, 1, 1, 3));
  EXPECT_THAT(numbers_of(positions[1]), ElementsAre(0, 1, 1, 3, 0, 1, 2, 3));
  EXPECT_THAT(numbers_of(positions[2]), ElementsAre(0, 1, 2, 3, 0, 1, 1, 3));
}

TEST(VisionTokens, PlacesAreThoseOfTheWholeBatch) {
  const at::Tensor tokens = rows_of({1, 8, 2, 8, 9, 8}, 2);
  EXPECT_THAT(numbers_of(places_of(tokens, images({{1, 1, 3, 0}}))), ElementsAre(1, 3, 5));
  EXPECT_THAT(numbers_of(places_of(tokens, videos({}))), ElementsAre());
}

TEST(VisionTokens, MustBeAsManyAsTheGridsSay) {
  const auto message = [](const at::Tensor& tokens, const std::vector<VisionTokens>& kinds) {
    return message_of_error([&] { check_vision_tokens(tokens, kinds); }, Code::kInvalidArgument);
  };
  check_vision_tokens(rows_of({8, 8, 8, 1, 9, 1}),
                      {images({{1, 1, 2, 0}, {1, 1, 1, 0}}), videos({{1, 1, 1, 0}})});
  EXPECT_THAT(
      message(rows_of({1, 8, 8, 1}), {images({{1, 1, 3, 0}}), videos({})}),
      HasSubstr("expected 3 tokens 8 in a row for block 0 (1 x 1 x 3 after merging), found 2 "
                "from position [0, 1]"));
  EXPECT_THAT(message(rows_of({1, 8, 8, 1}), {images({{1, 1, 1, 0}}), videos({})}),
              HasSubstr("one more at position [0, 2]"));
  EXPECT_THAT(
      message(rows_of({1, 8, 1, 1}), {images({{1, 1, 1, 0}, {1, 1, 2, 0}}), videos({})}),
      HasSubstr("expected 3 tokens 8 (those of 2 blocks), found those of the first 1 only"));
  EXPECT_THAT(message(rows_of({1, 9, 1, 1}), {images({}), videos({})}),
              HasSubstr("video_grid_thw: expected grids for the tokens 9"));
  EXPECT_THAT(message(rows_of({1, 8, 8, 1}, 2), {images({{1, 1, 2, 0}})}),
              HasSubstr("found 1 from position [0, 1]"));
  const TokenBlock first{1, 1, 1, 0};
  const TokenBlock second{1, 1, 1, 0, /*goes_on=*/true};
  EXPECT_THAT(message(rows_of({1, 9, 9, 1}, 2), {images({}), videos({first, second})}),
              HasSubstr("all frames of a grid in one row, found those of block 1 in rows 0 and 1"));
}

}  // namespace
}  // namespace fsdp2::models
