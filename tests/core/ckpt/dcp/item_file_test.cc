#include "core/ckpt/dcp/item_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

constexpr char kGolden[] = "tests/core/ckpt/golden/dcp_two_ranks/";

class DcpItem : public FileTest {
 protected:
  // Appends an item to the file that is being made; returns where it is.
  DcpStorage append(const at::Tensor& chunk) {
    const auto offset = static_cast<int64_t>(bytes_.size());
    return {"__0_0.distcp", offset, write_tensor_item(sink_, chunk), {}};
  }

  DcpItemFile file() const { return DcpItemFile(write("__0_0.distcp", bytes_)); }

  std::string bytes_;
  ByteSink sink_ = [this](const void* data, size_t count) {
    bytes_.append(static_cast<const char*>(data), count);
  };
};

DcpEntry entry_of(const at::Tensor& chunk, const DcpStorage& storage) {
  const std::vector<int64_t> zeros(chunk.sizes().size(), 0);
  return {"w",
          {},
          ChunkedTensor{chunk.scalar_type(), chunk.sizes().vec(), {{zeros, chunk.sizes().vec()}}},
          {storage}};
}

TEST_F(DcpItem, ChunksAndObjectsStandBackToBack) {
  const at::Tensor a = at::randn({4, 3});
  const at::Tensor b = at::randn({2, 5}).to(at::kBFloat16).t();
  const DcpEntry first = entry_of(a, append(a));
  const PythonValue lr = 0.25;
  const DcpStorage place{
      "__0_0.distcp", static_cast<int64_t>(bytes_.size()), write_object_item(sink_, lr), {}};
  const DcpEntry second = entry_of(b, append(b));
  EXPECT_EQ(second.storage[0].offset, place.offset + place.length);

  const DcpItemFile items = file();
  EXPECT_EQ(items.size(), second.storage[0].offset + second.storage[0].length);
  const at::Tensor read_a = at::empty({4, 3});
  items.read_box(first, 0, {0, 0}, read_a);
  EXPECT_TRUE(read_a.equal(a));
  const at::Tensor read_b = at::empty({2, 2}, at::kBFloat16);
  items.read_box(second, 0, {3, 0}, read_b);
  EXPECT_TRUE(read_b.equal(b.narrow(0, 3, 2)));
  EXPECT_EQ(items.read_object({"lr", {}, {}, {place}}).value(), lr);
  EXPECT_NO_THROW(items.verify(first, 0));
}

TEST_F(DcpItem, TensorItemHasTheSizeOfPythons) {
  // torch.save of a 2 x 3 fp32 chunk takes 1577 bytes.
  EXPECT_NEAR(static_cast<double>(append(at::zeros({2, 3})).length), 1577, 64);
}

TEST_F(DcpItem, ReadsEveryChunkThatPythonWrites) {
  const std::string path = std::string(kGolden) + kDcpMetadataName;
  const DcpMetadata metadata =
      decode_dcp_metadata(read_text_file(path, kMaxDcpMetadataBytes), path);
  for (const DcpEntry& entry : metadata.entries()) {
    for (size_t i = 0; i < entry.storage.size(); ++i) {
      EXPECT_NO_THROW(DcpItemFile(kGolden + entry.storage[i].relative_path).verify(entry, i))
          << entry.name;
    }
  }
  const DcpEntry& weight = *metadata.find("model.a.weight");
  const at::Tensor rows = at::empty({2, 3});
  DcpItemFile(std::string(kGolden) + "__1_0.distcp").read_box(weight, 1, {0, 0}, rows);
  EXPECT_TRUE(rows.equal(at::arange(9, 15, at::kFloat).view({2, 3})));

  const auto object = [&](const char* name) {
    const DcpEntry& entry = *metadata.find(name);
    return DcpItemFile(kGolden + entry.storage[0].relative_path).read_object(entry).value();
  };
  EXPECT_EQ(object("optim.param_groups.0.lr"), PythonValue(0.25));
  EXPECT_EQ(object("optim.param_groups.0.betas"), (PythonValue(PythonTuple{{0.9, 0.999}})));
  EXPECT_EQ(object("optim.param_groups.0.weight_decay"), PythonValue(0));
  EXPECT_TRUE(object("optim.param_groups.0.foreach").is_none());
  EXPECT_EQ(object("optim.param_groups.0.params"),
            (PythonValue(PythonList{{"a.weight", "b.weight"}})));
  EXPECT_EQ(object("seed"), PythonValue(int64_t{1} << 40));
  EXPECT_EQ(object("name"), PythonValue("tiny \xC3\xA9"));
}

TEST_F(DcpItem, ItemThatIsNotWhatTheMetadataSays) {
  const at::Tensor a = at::zeros({4, 3});
  const DcpEntry entry = entry_of(a, append(a));
  const DcpItemFile items = file();
  const at::Tensor out = at::empty({4, 3});
  DcpEntry other = entry;
  other.tensor->dtype = at::kLong;
  EXPECT_ERROR(items.read_box(other, 0, {0, 0}, out), Code::kCorruptData,
               "__0_0.distcp: w at [0, 0]: holds Float [4, 3], the metadata says Long [4, 3]");
  other = entry;
  other.tensor->chunks[0].sizes = {3, 3};
  EXPECT_ERROR(items.verify(other, 0), Code::kCorruptData, "the metadata says Float [3, 3]");
  other = entry;
  other.storage[0].length += 1;
  EXPECT_ERROR(items.verify(other, 0), Code::kCorruptData,
               "__0_0.distcp: w at [0, 0]: expected at 0 with");
  other = entry;
  other.storage[0].offset = 1;
  other.storage[0].length -= 1;
  EXPECT_ERROR(items.verify(other, 0), Code::kCorruptData, "w at [0, 0]: damaged zip archive");
  other = entry;
  other.storage[0].transforms = {"stream.zstd/1"};
  EXPECT_ERROR(items.verify(other, 0), Code::kUnsupported, "is stored after stream.zstd/1");
  EXPECT_ERROR(items.read_object(entry), Code::kInvalidArgument, "w is a tensor");
}

TEST_F(DcpItem, ObjectThatCallsAProgram) {
  // A torch.save archive whose pickle is os.system("true"), as Python would run it.
  const std::string harmless = write_torch_archive(PythonValue("0123456789abcdefgh"), {});
  std::string hostile = harmless;
  const std::string text =
      "X\x12\0\0\0"
      "0123456789abcdefgh"s;
  const std::string call = "cos\nsystem\nX\x04\0\0\0true\x85R"s;
  const size_t at = hostile.find(text);
  ASSERT_NE(at, std::string::npos);
  hostile.replace(at, text.size(), call + "0");
  // Its checksums are of the other pickle, so it is refused before it is looked at.
  bytes_ = hostile;
  const DcpEntry entry{
      "lr", {}, {}, {{"__0_0.distcp", 0, static_cast<int64_t>(hostile.size()), {}}}};
  EXPECT_ERROR(file().read_object(entry), Code::kCorruptData,
               "__0_0.distcp: lr: record data.pkl is damaged");
}

}  // namespace
}  // namespace fsdp2::ckpt
