#include "core/train/data/record_file.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/train/data/data_loader.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RecordRules kCut = {/*cut_long=*/true, /*skip_bad=*/false};
constexpr RecordRules kSkip = {/*cut_long=*/false, /*skip_bad=*/true};

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

class RecordFileTest : public FileTest {
 protected:
  RecordFile open(const std::string& lines, int64_t sequence_length, RecordRules rules = {}) const {
    return {write("r.jsonl", lines), 256, sequence_length, rules};
  }
  std::string error(const std::string& lines, Code code, int64_t sequence_length = 8,
                    RecordRules rules = {}) const {
    const Error error = error_of([&] { open(lines, sequence_length, rules); });
    EXPECT_EQ(error.code(), code) << lines;
    EXPECT_THAT(error.message(), HasSubstr(path("r.jsonl") + ": ")) << lines;
    return error.message();
  }
};

TEST_F(RecordFileTest, WindowTakesWholeRecordsAndIsPadded) {
  const RecordFile file = open(
      "{\"prompt\": \"ab\", \"response\": \"c\"}\n"
      "\n \t\r\n"
      "{\"text\": \"xy\"}\r\n"
      "{\"text\": \"zzzz\"}",
      8);
  EXPECT_EQ(file.record_count(), 3);
  ASSERT_EQ(file.window_count(8), 2);  // 3 + 2 places and 4 more are too many
  const TokenBatch batch = file.windows({1, 0}, 8);
  EXPECT_EQ(batch.inputs.sizes(), (std::vector<int64_t>{2, 8}));
  EXPECT_THAT(numbers(batch.inputs[1]), ElementsAre('a', 'b', 'c', 'x', 'y', 0, 0, 0));
  EXPECT_THAT(numbers(batch.labels[1]), ElementsAre(-100, 'c', 0, 'y', 0, -100, -100, -100));
  EXPECT_THAT(numbers(batch.positions[1]), ElementsAre(0, 1, 2, 0, 1, 0, 1, 2));
  EXPECT_THAT(numbers(batch.inputs[0]), ElementsAre('z', 'z', 'z', 'z', 0, 0, 0, 0));
  EXPECT_THAT(numbers(batch.positions[0]), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
}

TEST_F(RecordFileTest, WindowMayBeFullToTheLastPlace) {
  const RecordFile file = open("{\"text\": \"abcd\"}\n{\"text\": \"efgh\"}\n", 4);
  ASSERT_EQ(file.window_count(4), 2);
  const TokenBatch batch = file.windows({1}, 4);
  EXPECT_THAT(numbers(batch.inputs), ElementsAre('e', 'f', 'g', 'h'));
  EXPECT_THAT(numbers(batch.labels), ElementsAre('f', 'g', 'h', 0));
}

TEST_F(RecordFileTest, LongRecordIsRefusedOrCut) {
  const std::string lines =
      "{\"text\": \"a\"}\n{\"text\": \"abcdefgh\"}\n{\"text\": \"abcdefghi\"}";
  EXPECT_THAT(error(lines, Code::kInvalidArgument, 8),
              HasSubstr("line 3 has 10 tokens, a window of sequence length 8 takes 9"));
  const RecordFile file = open(lines, 8, kCut);
  EXPECT_THAT(numbers(file.windows({2}, 8).labels),
              ElementsAre('b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'));
  EXPECT_EQ(file.left_out(), path("r.jsonl") +
                                 ": cut the end of 1 of the lines; the first: line 3 has 10 "
                                 "tokens, a window of sequence length 8 takes 9");
}

TEST_F(RecordFileTest, BadLineIsRefusedWithItsNumberOrSkippedAndCounted) {
  const std::string lines =
      "\n{\"text\": \"a\"}\n{broken}\n{\"text\": \"b\"}\n[]\n{\"text\": \"c\"}";
  EXPECT_THAT(error(lines, Code::kCorruptData), HasSubstr(": line 3: is not JSON from byte 2 on"));
  const RecordFile file = open(lines, 8, kSkip);
  EXPECT_EQ(file.record_count(), 3);
  EXPECT_EQ(file.left_out(), path("r.jsonl") +
                                 ": skipped 2 of the lines; the first: line 3: is not JSON from "
                                 "byte 2 on");
  EXPECT_THAT(numbers(file.windows({0}, 8).inputs), ElementsAre('a', 'b', 'c', 0, 0, 0, 0, 0));
}

TEST_F(RecordFileTest, RecordWithoutAnAnswerIsBad) {
  for (const char* line : {"{\"text\": \"\"}", "{\"messages\": []}",
                           "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"}) {
    EXPECT_THAT(error(line, Code::kCorruptData, 64), HasSubstr("line 1: has no answer to learn"));
  }
  const std::string cut_before_the_answer = "{\"prompt\": \"abcdefghi\", \"response\": \"j\"}";
  EXPECT_THAT(error(cut_before_the_answer, Code::kCorruptData, 8, kCut),
              HasSubstr("line 1: has no answer to learn"));
}

TEST_F(RecordFileTest, LineThatIsSkippedIsNotCountedAsCut) {
  const RecordFile file =
      open("{\"prompt\": \"abcdefghi\", \"response\": \"j\"}\n{\"text\": \"a\"}", 8,
           {/*cut_long=*/true, /*skip_bad=*/true});
  EXPECT_EQ(
      file.left_out(),
      path("r.jsonl") + ": skipped 1 of the lines; the first: line 1: has no answer to learn");
}

TEST_F(RecordFileTest, WithoutARecordIsAnError) {
  for (const char* lines : {"", "\n", " \n\t\n"}) {
    EXPECT_THAT(error(lines, Code::kInvalidArgument), HasSubstr("has no records"));
  }
  EXPECT_THAT(error("3\n", Code::kInvalidArgument, 8, kSkip),
              HasSubstr("has no records but bad ones: line 1: expected an object, got number"));
}

TEST_F(RecordFileTest, NeedsAVocabularyOfAllBytes) {
  const std::string file = write("r.jsonl", "{\"text\": \"a\"}");
  EXPECT_EQ(error_of([&] { RecordFile(file, 255, 8, {}); }).code(), Code::kInvalidArgument);
  EXPECT_EQ(RecordFile(file, 256, 8, {}).window_count(8), 1);
}

TEST_F(RecordFileTest, RefusesWindowsThatAreNotThere) {
  const RecordFile file = open("{\"text\": \"a\"}", 8);
  for (const int64_t window : {-1, 1}) {
    EXPECT_EQ(error_of([&] { file.windows({window}, 8); }).code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(error_of([&] { file.windows({0}, 4); }).code(), Code::kInvalidArgument);
}

TEST_F(RecordFileTest, ThatChangedSinceItWasOpenedIsAnError) {
  const std::string before = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n";
  const RecordFile cut = open(before, 8);
  std::filesystem::resize_file(path("r.jsonl"), 5);
  EXPECT_EQ(error_of([&] { cut.windows({0}, 8); }).code(), Code::kIo);
}

// The windows of records go through the same loader as those of tokens, whose tests hold for both.
TEST_F(RecordFileTest, IsReadInTheOrderOfTheLoader) {
  std::string lines;
  for (char c = 'a'; c <= 'z'; ++c) {
    lines += std::string("{\"text\": \"") + c + "\"}\n";
  }
  const auto file = std::make_shared<RecordFile>(write("r.jsonl", lines), 256, 1, RecordRules());
  ASSERT_EQ(file->window_count(1), 26);
  DataLoaderOptions options;
  options.batch_size = 13;
  options.sequence_length = 1;
  options.order = DataOrder::kShuffle;
  DataLoader loader(file, options);
  std::vector<int64_t> epoch = numbers(loader.next().inputs);
  const DataPosition half = loader.position();
  const std::vector<int64_t> rest = numbers(loader.next().inputs);
  DataLoader resumed(file, options);
  resumed.seek(half);
  EXPECT_EQ(numbers(resumed.next().inputs), rest);
  epoch.insert(epoch.end(), rest.begin(), rest.end());
  std::sort(epoch.begin(), epoch.end());
  for (size_t i = 0; i < epoch.size(); ++i) {
    EXPECT_EQ(epoch[i], 'a' + static_cast<int64_t>(i));
  }
}

}  // namespace
}  // namespace fsdp2::train
