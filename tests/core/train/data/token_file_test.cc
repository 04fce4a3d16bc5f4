#include "core/train/data/token_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

constexpr char kGolden[] = "tests/parity/golden/tokens/tiny-llama.bin";

std::vector<int64_t> row(const at::Tensor& batch, int64_t index) {
  const at::Tensor values = batch[index].contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

class TokenFileTest : public FileTest {
 protected:
  template <typename Token>
  std::string tokens(const std::vector<Token>& values) const {
    return write("t.bin",
                 {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Token)});
  }
};

TEST_F(TokenFileTest, WindowsShareOneTokenWithTheirNeighbours) {
  const TokenFile file(tokens<uint16_t>({10, 11, 12, 13, 14, 15, 16, 17}), 100);
  EXPECT_EQ(file.token_count(), 8);
  EXPECT_EQ(file.window_count(3), 2);
  const TokenBatch batch = file.windows({0, 1}, 3);
  EXPECT_EQ(batch.inputs.scalar_type(), at::kLong);
  EXPECT_EQ(row(batch.inputs, 0), (std::vector<int64_t>{10, 11, 12}));
  EXPECT_EQ(row(batch.labels, 0), (std::vector<int64_t>{11, 12, 13}));
  EXPECT_EQ(row(batch.inputs, 1), (std::vector<int64_t>{13, 14, 15}));
  EXPECT_EQ(row(batch.labels, 1), (std::vector<int64_t>{14, 15, 16}));
}

TEST_F(TokenFileTest, CountsWindowsAsTheReferenceDoes) {
  // (T - 1) / S, rounded down.
  const TokenFile file(tokens<uint16_t>({1, 2, 3, 4, 5, 6, 7}), 100);
  EXPECT_EQ(file.window_count(1), 6);
  EXPECT_EQ(file.window_count(2), 3);
  EXPECT_EQ(file.window_count(3), 2);
  EXPECT_EQ(file.window_count(4), 1);
  EXPECT_EQ(file.window_count(6), 1);
}

TEST_F(TokenFileTest, GoldenFileHasTheReferencesWindows) {
  const TokenFile file(kGolden, 384);
  EXPECT_EQ(file.token_count(), 1928);
  EXPECT_EQ(file.window_count(32), 60);
  const TokenBatch batch = file.windows({0, 59}, 32);
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{2, 32}));
  EXPECT_EQ(batch.labels.sizes(), (at::IntArrayRef{2, 32}));
  // From numpy: tokens[0:5], tokens[31:33], tokens[1888:1891], tokens[1919:1921].
  EXPECT_EQ(row(batch.inputs.slice(1, 0, 5), 0), (std::vector<int64_t>{43, 51, 5, 19, 280}));
  EXPECT_EQ(row(batch.inputs.slice(1, 31, 32), 0), (std::vector<int64_t>{13}));
  EXPECT_EQ(row(batch.labels.slice(1, 30, 32), 0), (std::vector<int64_t>{13, 20}));
  EXPECT_EQ(row(batch.inputs.slice(1, 0, 3), 1), (std::vector<int64_t>{95, 58, 2}));
  EXPECT_EQ(row(batch.labels.slice(1, 30, 32), 1), (std::vector<int64_t>{1, 4}));
}

TEST_F(TokenFileTest, SequenceLengthOne) {
  const TokenFile file(tokens<uint16_t>({7, 8}), 100);
  const TokenBatch batch = file.windows({0}, 1);
  EXPECT_EQ(row(batch.inputs, 0), std::vector<int64_t>{7});
  EXPECT_EQ(row(batch.labels, 0), std::vector<int64_t>{8});
}

TEST_F(TokenFileTest, SixteenBitsUpToAVocabularyOf65536) {
  const TokenFile file(tokens<uint16_t>({65535, 32768, 0}), 65536);
  const TokenBatch batch = file.windows({0}, 2);
  EXPECT_EQ(row(batch.inputs, 0), (std::vector<int64_t>{65535, 32768}));
}

TEST_F(TokenFileTest, ThirtyTwoBitsAbove) {
  const TokenFile file(tokens<uint32_t>({65536, 4294967295, 1}), int64_t{1} << 32);
  EXPECT_EQ(file.token_count(), 3);
  const TokenBatch batch = file.windows({0}, 2);
  EXPECT_EQ(row(batch.inputs, 0), (std::vector<int64_t>{65536, 4294967295}));
  EXPECT_EQ(TokenFile(tokens<uint32_t>({1, 2}), 65537).token_count(), 2);
}

TEST_F(TokenFileTest, AnyFileIsBytes) {
  const TokenFile file(write("t.txt", "Hi \xff!"), 256, TokenFormat::kBytes);
  EXPECT_EQ(file.token_count(), 5);
  const TokenBatch batch = file.windows({0, 1}, 2);
  EXPECT_EQ(row(batch.inputs, 0), (std::vector<int64_t>{'H', 'i'}));
  EXPECT_EQ(row(batch.labels, 1), (std::vector<int64_t>{255, '!'}));
}

TEST_F(TokenFileTest, BytesOutsideASmallVocabularyAreNoticed) {
  const TokenFile file(write("t.txt", "ab\xff"), 128, TokenFormat::kBytes);
  EXPECT_ERROR(file.windows({0}, 2), Code::kCorruptData, "token 255 at position 2");
}

TEST_F(TokenFileTest, NoWindowsMakeAnEmptyBatch) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3}), 100);
  EXPECT_EQ(file.windows({}, 2).inputs.sizes(), (at::IntArrayRef{0, 2}));
}

TEST_F(TokenFileTest, FileShorterThanOneWindow) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3}), 100);
  EXPECT_ERROR(file.window_count(3), Code::kInvalidArgument,
               "t.bin: has 3 tokens, one window of sequence length 3 needs 4");
  const TokenFile empty(tokens<uint16_t>({}), 100);
  EXPECT_ERROR(empty.window_count(1), Code::kInvalidArgument, "has 0 tokens");
  EXPECT_ERROR(file.window_count(INT64_MAX), Code::kInvalidArgument, "needs 9223372036854775808");
}

TEST_F(TokenFileTest, SequenceLengthThatIsNotPositive) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3}), 100);
  EXPECT_ERROR(file.window_count(0), Code::kInvalidArgument, "sequence length 0 is not positive");
  EXPECT_ERROR(file.window_count(-1), Code::kInvalidArgument, "sequence length -1");
}

TEST_F(TokenFileTest, WindowThatIsNotThere) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3, 4, 5}), 100);
  EXPECT_ERROR(file.windows({0, 2}, 2), Code::kInvalidArgument, "there is no window 2 among 2");
  EXPECT_ERROR(file.windows({-1}, 2), Code::kInvalidArgument, "there is no window -1");
}

TEST_F(TokenFileTest, OddNumberOfBytes) {
  EXPECT_ERROR(TokenFile(write("t.bin", "123"), 100), Code::kCorruptData,
               "t.bin: has 3 bytes, not a multiple of 2 (a vocabulary of 100 has uint16 tokens)");
  EXPECT_ERROR(TokenFile(write("t.bin", "123456"), 65537), Code::kCorruptData,
               "not a multiple of 4");
}

TEST_F(TokenFileTest, TokenOutsideTheVocabularyIsNamedWithItsPosition) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3, 4, 100, 6, 7}), 100);
  EXPECT_EQ(file.windows({0}, 3).labels.size(0), 1);
  EXPECT_ERROR(file.windows({0, 1}, 3), Code::kCorruptData,
               "t.bin: token 100 at position 4 is not in the vocabulary of 100");
}

TEST_F(TokenFileTest, LastLabelOutsideTheVocabularyIsNoticed) {
  const TokenFile file(tokens<uint16_t>({1, 2, 3, 100}), 100);
  EXPECT_ERROR(file.windows({0}, 3), Code::kCorruptData, "token 100 at position 3");
}

TEST_F(TokenFileTest, VocabularyOutOfRange) {
  const std::string file = tokens<uint16_t>({1, 2});
  EXPECT_ERROR(TokenFile(file, 0), Code::kInvalidArgument,
               "vocab_size 0 is not in [1, 4294967296]");
  EXPECT_ERROR(TokenFile(file, (int64_t{1} << 32) + 1), Code::kInvalidArgument, "vocab_size");
}

TEST_F(TokenFileTest, MissingFile) {
  EXPECT_ERROR(TokenFile(path("none.bin"), 100), Code::kNotFound, path("none.bin"));
}

TEST_F(TokenFileTest, FileThatIsCutLaterIsAnErrorAndNotACrash) {
  const TokenFile file(tokens(std::vector<uint16_t>(10000, 1)), 100);
  ASSERT_EQ(::truncate(file.path().c_str(), 100), 0);
  EXPECT_ERROR(file.windows({500}, 10), Code::kIo, "t.bin: had 20000 bytes");
}

}  // namespace
}  // namespace fsdp2::train
