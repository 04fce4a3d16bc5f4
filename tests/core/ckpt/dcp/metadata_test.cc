#include "core/ckpt/dcp/metadata.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

constexpr char kGoldenMetadata[] = "tests/core/ckpt/golden/dcp_two_ranks/.metadata";

DcpEntry object_entry(const std::string& name, std::vector<PathPart> path) {
  return {name, std::move(path), {}, {{"__0_0.distcp", 100, 1261, {}}}};
}

// 5 x 3 in rows of 3 and 2.
DcpEntry tensor_entry() {
  return {"model.w",
          {"model", "w"},
          ChunkedTensor{at::kBFloat16, {5, 3}, {{{0, 0}, {3, 3}}, {{3, 0}, {2, 3}}}},
          {{"__0_0.distcp", 0, 1600, {}}, {"__1_0.distcp", int64_t{1} << 33, 1500, {}}}};
}

DcpMetadata metadata_of(const std::vector<DcpEntry>& entries) {
  DcpMetadata metadata;
  for (const DcpEntry& entry : entries) {
    metadata.add(entry);
  }
  return metadata;
}

void expect_same(const DcpStorage& a, const DcpStorage& b) {
  EXPECT_EQ(a.relative_path, b.relative_path);
  EXPECT_EQ(a.offset, b.offset);
  EXPECT_EQ(a.length, b.length);
  EXPECT_EQ(a.transforms, b.transforms);
}

void expect_same(const DcpEntry& a, const DcpEntry& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.path, b.path);
  ASSERT_EQ(a.tensor.has_value(), b.tensor.has_value());
  ASSERT_EQ(a.storage.size(), b.storage.size());
  for (size_t i = 0; i < a.storage.size(); ++i) {
    expect_same(a.storage[i], b.storage[i]);
  }
  if (a.tensor) {
    EXPECT_EQ(a.tensor->dtype, b.tensor->dtype);
    EXPECT_EQ(a.tensor->shape, b.tensor->shape);
    ASSERT_EQ(a.tensor->chunks.size(), b.tensor->chunks.size());
    for (size_t i = 0; i < a.tensor->chunks.size(); ++i) {
      EXPECT_EQ(a.tensor->chunks[i].offsets, b.tensor->chunks[i].offsets);
      EXPECT_EQ(a.tensor->chunks[i].sizes, b.tensor->chunks[i].sizes);
    }
  }
}

// Writes the entry without its being checked, by way of an entry that is right and a change of its
// bytes.
std::string with_replaced(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  return bytes.replace(at, from.size(), to);
}

TEST(DcpMetadata, RoundTrip) {
  DcpEntry transformed = object_entry("seed", {"seed"});
  transformed.storage[0].transforms = {"stream.zstd/1"};
  const std::vector<DcpEntry> entries{
      tensor_entry(),
      object_entry("optim.param_groups.0.lr", {"optim", "param_groups", int64_t{0}, "lr"}),
      transformed,
      {"step",
       {"step"},
       ChunkedTensor{at::kFloat, {}, {{{}, {}}}},
       {{"__1_0.distcp", 9, 1300, {}}}},
      {"empty", {"empty"}, ChunkedTensor{at::kLong, {0, 4}, {}}, {}},
  };
  const DcpMetadata read =
      decode_dcp_metadata(encode_dcp_metadata(metadata_of(entries)), ".metadata");
  EXPECT_EQ(read.version, "1.0.0");
  ASSERT_EQ(read.entries().size(), entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    SCOPED_TRACE(entries[i].name);
    expect_same(read.entries()[i], entries[i]);
    EXPECT_EQ(read.find(entries[i].name), &read.entries()[i]);
  }
  EXPECT_EQ(read.find("model"), nullptr);
}

DcpMetadata read_metadata(const std::string& file) {
  return decode_dcp_metadata(read_text_file(file, kMaxDcpMetadataBytes), file);
}

TEST(DcpMetadata, ReadsWhatPythonWrites) {
  const DcpMetadata read = read_metadata(kGoldenMetadata);
  EXPECT_EQ(read.version, "1.0.0");
  const DcpEntry* weight = read.find("model.a.weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->path, (std::vector<PathPart>{"model", "a.weight"}));
  EXPECT_EQ(weight->tensor->dtype, at::kFloat);
  EXPECT_EQ(weight->tensor->shape, (std::vector<int64_t>{5, 3}));
  ASSERT_EQ(weight->tensor->chunks.size(), 2U);
  EXPECT_EQ(weight->tensor->chunks[1].offsets, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(weight->tensor->chunks[1].sizes, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(weight->storage[1].relative_path, "__1_0.distcp");
  EXPECT_TRUE(covers(*weight->tensor));

  const DcpEntry* small = read.find("model.b.weight");
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(small->tensor->dtype, at::kBFloat16);
  EXPECT_EQ(small->tensor->chunks.at(1).sizes, (std::vector<int64_t>{0, 4}));
  EXPECT_TRUE(covers(*small->tensor));

  const DcpEntry* lr = read.find("optim.param_groups.0.lr");
  ASSERT_NE(lr, nullptr);
  EXPECT_FALSE(lr->tensor.has_value());
  EXPECT_EQ(lr->path, (std::vector<PathPart>{"optim", "param_groups", int64_t{0}, "lr"}));
  EXPECT_EQ(lr->storage.size(), 1U);
  EXPECT_EQ(read.find("optim.state.a.weight.step")->tensor->shape, std::vector<int64_t>{});
}

TEST(DcpMetadata, ReadsWhatTheNewestPythonWrites) {
  const DcpMetadata of_2_11 = read_metadata(kGoldenMetadata);
  const DcpMetadata of_2_15 = read_metadata("tests/core/ckpt/golden/torch_2_15.metadata");
  ASSERT_EQ(of_2_15.entries().size(), of_2_11.entries().size());
  for (size_t i = 0; i < of_2_11.entries().size(); ++i) {
    SCOPED_TRACE(of_2_11.entries()[i].name);
    expect_same(of_2_15.entries()[i], of_2_11.entries()[i]);
  }
}

TEST(DcpMetadata, TellsWhetherChunksCoverTheirTensor) {
  DcpEntry entry = tensor_entry();
  EXPECT_TRUE(covers(*entry.tensor));
  entry.tensor->chunks.pop_back();
  EXPECT_FALSE(covers(*entry.tensor));
}

TEST(DcpMetadata, NewerMajorVersionIsRefused) {
  const std::string bytes = encode_dcp_metadata(metadata_of({tensor_entry()}));
  EXPECT_EQ(decode_dcp_metadata(with_replaced(bytes, "1.0.0", "1.7.3"), "m").version, "1.7.3");
  EXPECT_ERROR(decode_dcp_metadata(with_replaced(bytes, "1.0.0", "2.0.0"), "c/.metadata"),
               Code::kUnsupported,
               "c/.metadata: the checkpoint's format has version 2.0.0, the newest known is 1.x");
  EXPECT_ERROR(decode_dcp_metadata(with_replaced(bytes, "1.0.0", "x.0.0"), "m"), Code::kCorruptData,
               "the version x.0.0");
}

TEST(DcpMetadata, FileNamesThatLeaveTheDirectoryAreRefused) {
  const std::string bytes = encode_dcp_metadata(metadata_of({tensor_entry()}));
  for (const std::string& name :
       {std::string("../0_0.distcp"), std::string("/tmp/x.distcp"), std::string("..\\0_0.distc"),
        std::string("C:__0_0.dist"), "__0_0.dis\0cp"s}) {
    ASSERT_LE(name.size(), 13U);
    const std::string padded = name + std::string(13 - name.size(), 'x');
    EXPECT_ERROR(
        decode_dcp_metadata(with_replaced(bytes, "\x0c\0\0\0__0_0.distcp"s, "\x0d\0\0\0"s + padded),
                            "c/.metadata"),
        Code::kCorruptData, "c/.metadata: model.w lies in the file");
  }
  DcpEntry entry = tensor_entry();
  for (const char* name : {"", ".", ".."}) {
    entry.storage[0].relative_path = name;
    EXPECT_ERROR(encode_dcp_metadata(metadata_of({entry})), Code::kInvalidArgument,
                 "model.w lies in the file");
  }
}

TEST(DcpMetadata, FileNamesThatNoMessageOrSystemHoldsAreRefused) {
  DcpEntry entry = tensor_entry();
  for (const std::string& name : {"two\nlines"s, "\x1b[2J"s, "nul\0l"s, std::string(256, 'x')}) {
    entry.storage[0].relative_path = name;
    EXPECT_ERROR(encode_dcp_metadata(metadata_of({entry})), Code::kInvalidArgument,
                 "model.w lies in the file");
  }
}

class BrokenDcpMetadata : public testing::Test {
 protected:
  // What encode and decode say of an entry.
  void expect_refused(const DcpEntry& entry, const std::string& text) {
    EXPECT_ERROR(encode_dcp_metadata(metadata_of({entry})), Code::kInvalidArgument, text);
  }

  DcpEntry entry_ = tensor_entry();
  ChunkedTensor& tensor_ = *entry_.tensor;
};

TEST_F(BrokenDcpMetadata, ChunksThatOverlap) {
  tensor_.chunks[1].offsets = {2, 0};
  expect_refused(entry_, "model.w has chunks that overlap: [3, 3] at [0, 0] and [2, 3] at [2, 0]");
  // The same in a file: the offset (3, 0) of chunk and index becomes (2, 0).
  std::string bytes = encode_dcp_metadata(metadata_of({tensor_entry()}));
  const std::string offset = "(K\x03K\x00t"s;
  for (size_t at = bytes.find(offset); at != std::string::npos; at = bytes.find(offset, at + 1)) {
    bytes[at + 2] = 2;
  }
  EXPECT_ERROR(decode_dcp_metadata(bytes, "c/.metadata"), Code::kCorruptData,
               "c/.metadata: model.w has chunks that overlap");
}

TEST_F(BrokenDcpMetadata, ChunksInAGridDoNotOverlap) {
  tensor_ = {at::kFloat, {20, 30}, {}};
  entry_.storage.clear();
  for (int64_t row = 0; row < 20; row += 5) {
    for (int64_t column = 0; column < 30; column += 10) {
      tensor_.chunks.push_back({{row, column}, {5, 10}});
      entry_.storage.push_back({"__0_0.distcp", 0, 1, {}});
    }
  }
  EXPECT_NO_THROW(encode_dcp_metadata(metadata_of({entry_})));
  tensor_.chunks[5].sizes = {6, 10};
  expect_refused(entry_, "overlap");
}

TEST_F(BrokenDcpMetadata, ChunksOutsideTheirTensor) {
  tensor_.chunks[1].sizes = {3, 3};
  expect_refused(entry_, "has a chunk [3, 3] at [3, 0] outside its shape [5, 3]");
  tensor_.chunks[1] = {{-1, 0}, {2, 3}};
  expect_refused(entry_, "outside its shape");
  tensor_.chunks[1] = {{3, 0}, {INT64_MAX, 3}};
  expect_refused(entry_, "outside its shape");
  tensor_.chunks[1] = {{3}, {2}};
  expect_refused(entry_, "has a chunk of 1 dims, expected 2");
}

TEST_F(BrokenDcpMetadata, ShapesThatOverflow) {
  tensor_ = {at::kFloat, {int64_t{1} << 32, int64_t{1} << 32}, {}};
  entry_.storage.clear();
  expect_refused(entry_, "has a shape of [4294967296, 4294967296], which is too large");
  tensor_.shape = {-1, 3};
  expect_refused(entry_, "too large or negative");
}

TEST_F(BrokenDcpMetadata, PlacesThatAreMissingOrNegative) {
  entry_.storage[0].offset = -1;
  expect_refused(entry_, "lies at -1");
  entry_.storage[0] = {"__0_0.distcp", INT64_MAX, 2, {}};
  expect_refused(entry_, "lies at 9223372036854775807 with 2 bytes");
  entry_.storage.pop_back();
  expect_refused(entry_, "has 2 items, but places for 1");
  const std::string bytes = encode_dcp_metadata(metadata_of({tensor_entry()}));
  EXPECT_ERROR(
      decode_dcp_metadata(
          with_replaced(bytes, "offset\x68\x06(K\x00K\x00"s, "offset\x68\x06(K\x01K\x00"s), "m"),
      Code::kCorruptData, "m: model.w has a chunk without a place in any file");
}

TEST_F(BrokenDcpMetadata, PathsThatAreNotThoseOfTheNames) {
  std::string bytes = encode_dcp_metadata(metadata_of({tensor_entry()}));
  const size_t part = bytes.find("\x05\0\0\0model"s);
  ASSERT_NE(part, std::string::npos);
  bytes[part + 4] = 'n';  // of "model", which is nowhere else a text of its own
  EXPECT_ERROR(decode_dcp_metadata(bytes, "m"), Code::kCorruptData,
               "m: the path of model.w leads to nodel.w: it is damaged");
}

TEST_F(BrokenDcpMetadata, SameNameTwice) {
  DcpMetadata metadata = metadata_of({entry_});
  EXPECT_ERROR(metadata.add(entry_), Code::kInvalidArgument, "model.w is in the checkpoint");
}

TEST_F(BrokenDcpMetadata, OtherPickles) {
  EXPECT_ERROR(decode_dcp_metadata("\x80\x04N.", "c/.metadata"), Code::kCorruptData,
               "c/.metadata: expected the metadata of a DCP checkpoint, found None");
  EXPECT_ERROR(decode_dcp_metadata("\x80\x02"
                                   "cos\nsystem\nX\x02\0\0\0ls\x85R.",
                                   "c/.metadata"),
               Code::kUnsupported, "it uses os.system");
  EXPECT_ERROR(decode_dcp_metadata("", "c/.metadata"), Code::kCorruptData, "c/.metadata");
}

}  // namespace
}  // namespace fsdp2::ckpt
