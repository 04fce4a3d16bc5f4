#include "core/ckpt/safetensors/safetensors_file.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/safetensors/rows.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

using Safetensors = SafetensorsFixture;

TEST_F(Safetensors, FileIsWhatPythonWrites) {
  // safetensors.torch.save({"a": tensor([1.0, -2.0]), "b": tensor([[1, 2, 3]], dtype=uint8)},
  //                        metadata={"format": "pt", "fsdp2_checksums": ...})
  const std::string data("\0\0\x80\x3f\0\0\0\xc0\1\2\3", 11);
  const std::string checksums = R"({\"block_bytes\":1048576,\"tensors\":{\"a\":\")" +
                                checksum_text(checksum(&data[0], 8)) + R"(\",\"b\":\")" +
                                checksum_text(checksum(&data[8], 3)) + R"(\"}})";
  const std::string header = R"({"__metadata__":{"format":"pt","fsdp2_checksums":")" + checksums +
                             R"("},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[1,3],"data_offsets":[8,11]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  const std::string file = save(
      {{"a", at::tensor({1.0F, -2.0F})}, {"b", at::tensor({1, 2, 3}, at::kByte).view({1, 3})}});
  EXPECT_EQ(contents(file), safetensors_text(header + padding, data));
}

TEST_F(Safetensors, RoundTripIsBitExactForEveryDtype) {
  const at::Tensor bits = at::randint(0, 256, {64}, at::kByte);
  Tensors tensors{{"bool", at::tensor({1, 0, 1, 1}).to(at::kBool)}};
  for (const at::ScalarType dtype :
       {at::kComplexFloat, at::kDouble, at::kLong, at::kUInt64, at::kFloat, at::kInt, at::kUInt32,
        at::kBFloat16, at::kHalf, at::kShort, at::kUInt16, at::kChar, at::kByte, at::kFloat8_e4m3fn,
        at::kFloat8_e5m2, at::kFloat8_e8m0fnu}) {
    tensors.emplace(tensors.end() - 1, c10::toString(dtype), bits.view(dtype).view({2, -1, 2}));
  }
  const SafetensorsFile file(save(tensors));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const SafetensorsEntry* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, tensor.scalar_type()) << name;
    EXPECT_EQ(at::IntArrayRef(entry->shape), tensor.sizes()) << name;
    const ByteSpan data = file.data(*entry);
    EXPECT_EQ(std::string(data.begin(), data.end()), bytes_of(tensor)) << name;
  }
}

TEST_F(Safetensors, RoundTripOfNanPayloadsAndSignedZeroInBfloat16) {
  const at::Tensor tensor = at::tensor({0x7FC1, 0xFFFF, 0x8000, 0x0001, 0x7F80}, at::kInt)
                                .to(at::kUInt16)
                                .view(at::kBFloat16);
  const SafetensorsFile file(save({{"a", tensor}}));
  const at::Tensor back = at::empty({5}, at::kBFloat16);
  read_rows(file, *file.find("a"), {5}, "test", 0, back);
  EXPECT_EQ(bytes_of(back), bytes_of(tensor));
}

TEST_F(Safetensors, EmptyAndZeroDimTensorsSurvive) {
  const SafetensorsFile file(save({{"empty first", at::empty({0})},
                                   {"scalar", at::scalar_tensor(3.5)},
                                   {"no columns", at::empty({4, 0})},
                                   {"empty last", at::empty({0, 3})}}));
  EXPECT_EQ(file.find("scalar")->shape, std::vector<int64_t>{});
  EXPECT_EQ(file.find("scalar")->bytes, 4);
  EXPECT_EQ(file.find("no columns")->shape, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(file.find("empty last")->bytes, 0);
}

TEST_F(Safetensors, NoTensorsAtAll) {
  const SafetensorsFile file(save({}));
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST_F(Safetensors, NamesMayHoldAnyText) {
  const std::string name = "läyer \"0\"\n\\";
  const SafetensorsFile file(save({{name, at::ones({1})}}));
  EXPECT_NE(file.find(name), nullptr);
  EXPECT_EQ(file.find("other"), nullptr);
}

TEST_F(Safetensors, TensorsInAnyLayoutAreWrittenRowMajor) {
  const at::Tensor tensor = at::arange(6, at::kFloat).view({2, 3}).t();
  const SafetensorsFile file(
      save({{"a", tensor}, {"b", at::arange(9, at::kFloat).slice(0, 1, 9, 2)}}));
  const ByteSpan data = file.data(*file.find("a"));
  EXPECT_EQ(std::string(data.begin(), data.end()),
            bytes_of(at::tensor({0.F, 3.F, 1.F, 4.F, 2.F, 5.F})));
  at::Tensor back = at::empty({4});
  read_rows(file, *file.find("b"), {4}, "test", 0, back);
  EXPECT_TRUE(back.equal(at::tensor({1.F, 3.F, 5.F, 7.F})));
}

TEST_F(Safetensors, DataIsAlignedToEightBytesInTheFile) {
  for (size_t length = 1; length <= 8; ++length) {
    const SafetensorsFile file(save({{std::string(length, 'n'), at::ones({1})}}));
    EXPECT_EQ(file.tensors()[0].offset % 8, 0);
  }
}

TEST_F(Safetensors, SpacesBehindTheHeaderAreFine) {
  const SafetensorsFile file(write(
      "x", safetensors_text(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}     )", "d")));
  EXPECT_EQ(file.tensors()[0].offset, 8 + 58);
}

TEST_F(Safetensors, OrderInTheHeaderNeedNotBeThatOfTheData) {
  const SafetensorsFile file(
      write("x", safetensors_text(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                                  R"("b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                  "123")));
  EXPECT_EQ(file.tensors()[0].name, "b");
  const ByteSpan data = file.data(*file.find("a"));
  EXPECT_EQ(std::string(data.begin(), data.end()), "23");
}

class SafetensorsWriterTest : public SafetensorsFixture {
 protected:
  void refuses_plan(const std::vector<TensorSpec>& plan, Code code, const std::string& message) {
    EXPECT_ERROR((SafetensorsWriter{path("x.safetensors"), plan}), code, message);
    EXPECT_TRUE(files().empty());
  }
};

TEST_F(SafetensorsWriterTest, RefusesANameTwiceOrReserved) {
  refuses_plan({{"a", at::kFloat, {1}}, {"a", at::kFloat, {1}}}, Code::kInvalidArgument,
               "x.safetensors: the name a is planned twice or reserved");
  refuses_plan({{"__metadata__", at::kFloat, {1}}}, Code::kInvalidArgument, "reserved");
}

TEST_F(SafetensorsWriterTest, RefusesAShapeThatCannotBe) {
  refuses_plan({{"a", at::kFloat, {-1}}}, Code::kInvalidArgument, "tensor a: a shape of [-1]");
  refuses_plan({{"a", at::kFloat, {INT64_MAX, 2}}}, Code::kInvalidArgument, "tensor a");
  refuses_plan({{"a", at::kByte, {INT64_MAX}}, {"b", at::kByte, {1}}}, Code::kInvalidArgument,
               "tensor b");
}

TEST_F(SafetensorsWriterTest, RefusesADtypeThatTheFormatLacks) {
  refuses_plan({{"a", at::kComplexDouble, {1}}}, Code::kUnsupported,
               "tensor a: safetensors has no dtype ComplexDouble");
}

TEST_F(SafetensorsWriterTest, RefusesANameThatIsNotUtf8) {
  refuses_plan({{"\xff", at::kFloat, {1}}}, Code::kInvalidArgument, "is not UTF-8");
}

TEST_F(SafetensorsWriterTest, RefusesAPlanThatLeavesATensorUnaligned) {
  std::vector<TensorSpec> plan{{"a", at::kBFloat16, {1}}, {"b", at::kFloat, {1}}};
  refuses_plan(plan, Code::kInvalidArgument, "tensor b of dtype F32 would begin at byte 2");
  sort_by_item_size(plan);
  EXPECT_EQ(plan[0].name, "b");
  const SafetensorsWriter writer(path("x.safetensors"), plan);
}

TEST_F(SafetensorsWriterTest, SortingKeepsTheOrderAmongEqualItemSizes) {
  std::vector<TensorSpec> plan{
      {"c", at::kByte, {1}}, {"b", at::kFloat, {1}}, {"a", at::kInt, {1}}, {"d", at::kHalf, {1}}};
  sort_by_item_size(plan);
  std::string names;
  for (const TensorSpec& spec : plan) {
    names += spec.name;
  }
  EXPECT_EQ(names, "badc");
}

TEST_F(SafetensorsWriterTest, TakesTensorsOnlyAsPlanned) {
  SafetensorsWriter writer(path("x.safetensors"), {{"a", at::kFloat, {2}}, {"b", at::kFloat, {1}}});
  EXPECT_ERROR(writer.append("b", at::ones({1})), Code::kInvalidArgument,
               "tensor b was appended where the plan has a");
  EXPECT_ERROR(writer.append("a", at::ones({3})), Code::kInvalidArgument,
               "tensor a: the plan says Float [2], the tensor is Float [3]");
  EXPECT_ERROR(writer.append("a", at::ones({2}, at::kHalf)), Code::kInvalidArgument,
               "the tensor is Half [2]");
  EXPECT_ERROR(writer.append("a", at::Tensor()), Code::kInvalidArgument,
               "expected a strided tensor");
  writer.append("a", at::ones({2}));
  EXPECT_ERROR(writer.finish(), Code::kWrongState, "finished after 1 of 2 tensors; b is missing");
  writer.append("b", at::ones({1}));
  EXPECT_ERROR(writer.append("c", at::ones({1})), Code::kInvalidArgument,
               "tensor c comes after all 2 planned tensors");
  writer.finish();
  EXPECT_EQ(SafetensorsFile(path("x.safetensors")).tensors().size(), 2U);
}

TEST_F(SafetensorsWriterTest, RefusesATensorWithoutMemory) {
  SafetensorsWriter writer(path("x.safetensors"), {{"a", at::kFloat, {2}}});
  const at::Tensor freed = at::ones({2});
  freed.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_ERROR(writer.append("a", freed), Code::kWrongState, "tensor a has no memory");
}

TEST_F(SafetensorsWriterTest, UnfinishedFileNeverAppears) {
  write("x.safetensors", "old");
  {
    SafetensorsWriter writer(path("x.safetensors"), {{"a", at::kFloat, {2}}});
    writer.append("a", at::ones({2}));
  }
  EXPECT_EQ(contents(path("x.safetensors")), "old");
  EXPECT_EQ(files().size(), 1U);
}

}  // namespace
}  // namespace fsdp2::ckpt
