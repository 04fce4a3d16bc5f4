#include "core/ckpt/torch/archive.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>

#include <string>
#include <vector>

#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

constexpr char kValues[] = "tests/core/ckpt/golden/values.pth";
constexpr char kOldFormat[] = "tests/core/ckpt/golden/old_format.pth";

at::Tensor count_from(int64_t first, at::IntArrayRef shape) {
  const int64_t numel = c10::multiply_integers(shape);
  return at::arange(first, first + numel, at::kFloat).view(shape);
}

class TorchArchiveTest : public FileTest {
 protected:
  // An archive of one tensor; returns its path.
  std::string save(const at::Tensor& tensor) {
    return write("x.pth", write_torch_archive(
                              describe_tensor(0, tensor.scalar_type(), tensor.sizes()), {tensor}));
  }

  at::Tensor box(const at::Tensor& stored, at::IntArrayRef begin, at::IntArrayRef sizes,
                 at::ScalarType wanted = at::kFloat) {
    const TorchArchive archive(save(stored));
    const at::Tensor out = at::full(sizes, -1.0, wanted);
    archive.read_box(*archive.root().as<StoredTensor>(), begin, out);
    return out;
  }
};

TEST_F(TorchArchiveTest, RoundTripIsBitExactForEveryDtype) {
  const at::Tensor bits = at::randint(0, 256, {64}, at::kByte);
  for (const at::ScalarType dtype :
       {at::kComplexDouble, at::kComplexFloat, at::kDouble, at::kLong, at::kUInt64, at::kFloat,
        at::kInt, at::kUInt32, at::kBFloat16, at::kHalf, at::kShort, at::kUInt16, at::kChar,
        at::kByte, at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e8m0fnu}) {
    const at::Tensor tensor = bits.view(dtype).view({2, -1, 2});
    const TorchArchive archive(save(tensor));
    const auto* stored = archive.root().as<StoredTensor>();
    ASSERT_NE(stored, nullptr);
    const at::Tensor back = archive.read(*stored);
    EXPECT_EQ(back.sizes(), tensor.sizes());
    EXPECT_TRUE(back.view(at::kByte).equal(tensor.view(at::kByte))) << c10::toString(dtype);
  }
}

TEST_F(TorchArchiveTest, EmptyAndZeroDimTensorsSurvive) {
  for (const at::Tensor& tensor :
       {at::empty({0}), at::empty({3, 0}), at::scalar_tensor(2.5), at::ones({1}).to(at::kBool)}) {
    const TorchArchive archive(save(tensor));
    EXPECT_TRUE(archive.read(*archive.root().as<StoredTensor>()).equal(tensor));
  }
}

TEST_F(TorchArchiveTest, TiedTensorsAreStoredOnce) {
  const StoredTensor tensor = describe_tensor(0, at::kFloat, {1000});
  const at::Tensor values = count_from(0, {1000});
  const std::string bytes =
      write_torch_archive(PythonDict{{{"a", tensor}, {"b", tensor}}}, {values});
  EXPECT_LT(bytes.size(), 6000U);
  const TorchArchive archive(write("x.pth", bytes));
  EXPECT_TRUE(archive.read(*find(archive.root(), "b")->as<StoredTensor>()).equal(values));
}

TEST_F(TorchArchiveTest, WritesAnyLayout) {
  const at::Tensor view = count_from(0, {4, 6}).t().slice(0, 1, 3);
  const TorchArchive archive(save(view));
  EXPECT_TRUE(archive.read(*archive.root().as<StoredTensor>()).equal(view));
}

TEST_F(TorchArchiveTest, DataIsAligned) {
  const TorchArchive archive(save(count_from(0, {5})));
  EXPECT_EQ(archive.file_offset(*archive.root().as<StoredTensor>()) % 64, 0);
}

TEST_F(TorchArchiveTest, WriterTakesExactlyThePlannedTensors) {
  const auto sink = [](const void*, size_t) {};
  TorchArchiveWriter writer(sink, describe_tensor(0, at::kFloat, {2}));
  EXPECT_ERROR(writer.append(at::zeros({3})), Code::kInvalidArgument,
               "record 0 of an archive: expected 2 elements of Float, found Float [3]");
  EXPECT_ERROR(writer.append(at::zeros({2}, at::kLong)), Code::kInvalidArgument, "Long");
  EXPECT_ERROR(writer.finish(), Code::kWrongState, "0 of 1 tensors");
  writer.append(at::zeros({2}));
  EXPECT_ERROR(writer.append(at::zeros({2})), Code::kInvalidArgument, "after all 1");
  writer.finish();
  EXPECT_ERROR(TorchArchiveWriter(sink, describe_tensor(1, at::kFloat, {2})),
               Code::kInvalidArgument, "record is 1, expected 0");
  EXPECT_ERROR(TorchArchiveWriter(sink, PythonList{{describe_tensor(0, at::kFloat, {2}),
                                                    describe_tensor(0, at::kLong, {2})}}),
               Code::kInvalidArgument, "of the same dtype and size");
}

TEST_F(TorchArchiveTest, ErrorOfTheSinkComesThroughAtAnyByte) {
  const at::Tensor tensor = count_from(0, {100});
  const size_t total = write_torch_archive(describe_tensor(0, at::kFloat, {100}), {tensor}).size();
  for (size_t room = 0; room < total; room += 97) {
    size_t written = 0;
    const auto sink = [&](const void*, size_t count) {
      written += count;
      if (written > room) {
        fail(Code::kIo, "disk full");
      }
    };
    const auto save = [&] {
      TorchArchiveWriter writer(sink, describe_tensor(0, at::kFloat, {100}));
      writer.append(tensor);
      writer.finish();
    };
    EXPECT_ERROR(save(), Code::kIo, "disk full");
  }
}

TEST_F(TorchArchiveTest, ReadsWhatPythonWrites) {
  const TorchArchive archive(kValues);
  const PythonValue& root = archive.root();
  const auto tensor = [&](const char* name) {
    return archive.read(*find(root, name)->as<StoredTensor>());
  };
  const at::Tensor shared = count_from(0, {4, 6});
  EXPECT_TRUE(tensor("parameter").equal(count_from(1, {2})));
  EXPECT_TRUE(find(root, "parameter")->as<StoredTensor>()->requires_grad);
  for (const PythonValue& tied : find(root, "tied")->as<PythonList>()->items) {
    EXPECT_TRUE(archive.read(*tied.as<StoredTensor>()).equal(shared));
  }
  EXPECT_TRUE(tensor("columns").equal(shared.slice(0, 1, 3).slice(1, 2, 5)));
  EXPECT_TRUE(tensor("transposed").equal(shared.t()));
  EXPECT_EQ(tensor("scalar").item<double>(), 2.5);
  EXPECT_EQ(tensor("empty").sizes(), (at::IntArrayRef{0, 3}));
  EXPECT_TRUE(tensor("bfloat16").equal(count_from(3, {3}).to(at::kBFloat16)));
  EXPECT_TRUE(tensor("bool").equal(at::tensor({1, 0, 1}).to(at::kBool)));
  EXPECT_TRUE(tensor("float8").to(at::kFloat).equal(count_from(1, {4})));
  EXPECT_TRUE(tensor("uint16").to(at::kLong).equal(at::tensor({1, 65535}, at::kLong)));
  EXPECT_EQ(tensor("complex").item<c10::complex<float>>(), (c10::complex<float>{1, 2}));

  EXPECT_EQ(*find(root, "int"),
            (PythonValue(PythonList{
                {0, -1, 255, 256, 65536, INT32_MIN, int64_t{1} << 31, INT64_MIN, INT64_MAX}})));
  EXPECT_EQ(*find(root, "text"), PythonValue("tiny \xC3\xA9 \xF0\x9F\x98\x80"));
  EXPECT_EQ(*find(root, "bytes"), PythonValue(PythonBytes{"\0\x7F\x80\xFF"s}));
  EXPECT_TRUE(find(root, "none")->is_none());
  EXPECT_EQ(*find(root, "flags"), (PythonValue(PythonTuple{{true, false}})));
  EXPECT_EQ(*find(root, "set"), (PythonValue(PythonSet{{1, 2}})));
  EXPECT_EQ(*find(root, "size"), (PythonValue(PythonTuple{{2, 3}})));
  EXPECT_EQ(kind_name(*find(root, "dtype")), "torch.bfloat16");
  EXPECT_EQ(kind_name(*find(root, "device")), "torch.device");
  EXPECT_EQ(*find(root, "ordered"), (PythonValue(PythonDict{{{"z", 1}, {"a", 2}}})));
  EXPECT_EQ(*find(root, "by number"), (PythonValue(PythonDict{{{0, "zero"}, {1, "one"}}})));
}

TEST_F(TorchArchiveTest, ReadsAnArchiveInsideAFile) {
  const std::string archive = write_torch_archive(PythonTuple{{1, "a"}}, {});
  const std::string file = write("x.distcp", "front" + archive + "back");
  const auto mapped = std::make_shared<const FileBytes>(file);
  const auto bytes = static_cast<int64_t>(archive.size());
  EXPECT_EQ(TorchArchive(mapped, 5, bytes, "item").root(), (PythonValue(PythonTuple{{1, "a"}})));
  EXPECT_ERROR(TorchArchive(mapped, 4, bytes, "the item"), Code::kCorruptData,
               file + ": the item: ");
  EXPECT_ERROR(TorchArchive(mapped, 10, bytes, "the item"), Code::kCorruptData,
               "expected at 10 with");
  EXPECT_ERROR(TorchArchive(mapped, -1, bytes, "the item"), Code::kCorruptData, "expected at -1");
  EXPECT_ERROR(TorchArchive(mapped, 5, INT64_MAX, "the item"), Code::kCorruptData, "expected at 5");
}

TEST_F(TorchArchiveTest, BoxesOfEveryShape) {
  const at::Tensor stored = count_from(0, {4, 5, 6});
  for (int64_t a = 0; a < 4; ++a) {
    for (int64_t b = 0; b < 5; b += 2) {
      const at::Tensor expected = stored.narrow(0, a, 4 - a).narrow(1, b, 5 - b).narrow(2, 1, 4);
      EXPECT_TRUE(box(stored, {a, b, 1}, expected.sizes()).equal(expected));
    }
  }
  EXPECT_TRUE(box(stored, {0, 0, 0}, {4, 5, 6}).equal(stored));
  EXPECT_EQ(box(stored, {4, 0, 0}, {0, 5, 6}).numel(), 0);
}

TEST_F(TorchArchiveTest, BoxesLargerThanTheBuffer) {
  const at::Tensor stored = at::randn({3, 1000, 1000});
  EXPECT_TRUE(box(stored, {1, 0, 0}, {2, 1000, 1000}).equal(stored.narrow(0, 1, 2)));
  EXPECT_TRUE(
      box(stored, {0, 10, 7}, {3, 900, 900}).equal(stored.narrow(1, 10, 900).narrow(2, 7, 900)));
  EXPECT_TRUE(box(stored, {0, 0, 0}, {3, 1000, 1000}, at::kDouble).equal(stored.to(at::kDouble)));
  EXPECT_TRUE(box(stored, {0, 0, 999}, {3, 1000, 1}).equal(stored.narrow(2, 999, 1)));
}

TEST_F(TorchArchiveTest, BoxGoesIntoAnyMemory) {
  const at::Tensor stored = count_from(0, {4, 6});
  const TorchArchive archive(save(stored));
  const StoredTensor& tensor = *archive.root().as<StoredTensor>();
  const at::Tensor whole = at::zeros({6, 8});
  archive.read_box(tensor, {0, 0}, whole.narrow(0, 1, 4).narrow(1, 1, 6));
  EXPECT_TRUE(whole.narrow(0, 1, 4).narrow(1, 1, 6).equal(stored));
  EXPECT_EQ(whole.sum().item<float>(), stored.sum().item<float>());
  const at::Tensor turned = at::zeros({6, 4});
  archive.read_box(tensor, {0, 0}, turned.t());
  EXPECT_TRUE(turned.equal(stored.t()));
  const at::Tensor leaf = at::zeros({4, 6}).set_requires_grad(true);
  archive.read_box(tensor, {0, 0}, leaf);
  EXPECT_TRUE(leaf.detach().equal(stored));
}

TEST_F(TorchArchiveTest, BoxThatDoesNotFitIsRefused) {
  const TorchArchive archive(save(count_from(0, {4, 6})));
  const StoredTensor& tensor = *archive.root().as<StoredTensor>();
  const auto read = [&](at::IntArrayRef begin, const at::Tensor& out) {
    archive.read_box(tensor, begin, out);
  };
  EXPECT_ERROR(read({3, 0}, at::zeros({2, 6})), Code::kInvalidArgument,
               "cannot read a box at [3, 0] of a tensor of [4, 6] into one of [2, 6]");
  EXPECT_ERROR(read({-1, 0}, at::zeros({2, 6})), Code::kInvalidArgument, "cannot read");
  EXPECT_ERROR(read({INT64_MAX, 0}, at::zeros({2, 6})), Code::kInvalidArgument, "cannot read");
  EXPECT_ERROR(read({0}, at::zeros({4, 6})), Code::kInvalidArgument, "cannot read");
  EXPECT_ERROR(read({0, 0}, at::zeros({4, 6}, at::kLong)), Code::kInvalidArgument,
               "holds a tensor of Float, which is not read as Long");
}

TEST_F(TorchArchiveTest, FlippedDataIsFoundWhenWholeTensorsAreRead) {
  const at::Tensor tensor = count_from(0, {100});
  std::string bytes = write_torch_archive(describe_tensor(0, at::kFloat, {100}), {tensor});
  const size_t data = static_cast<size_t>(
      TorchArchive(write("x.pth", bytes)).file_offset(describe_tensor(0, at::kFloat, {100})));
  bytes[data + 200] = static_cast<char>(bytes[data + 200] ^ 1);
  const TorchArchive archive(write("x.pth", bytes));
  EXPECT_ERROR(archive.read(*archive.root().as<StoredTensor>()), Code::kCorruptData,
               "x.pth: record data/0 is damaged: its checksum is");
  EXPECT_ERROR(archive.verify(), Code::kCorruptData, "record data/0 is damaged");
}

TEST_F(TorchArchiveTest, BoolsMustBeZeroOrOne) {
  std::string bytes =
      write_torch_archive(describe_tensor(0, at::kBool, {3}), {at::ones({3}, at::kBool)});
  const size_t data = bytes.find("\1\1\1PK"s);
  ASSERT_NE(data, std::string::npos);
  bytes[data] = 2;
  const TorchArchive archive(write("x.pth", bytes));
  EXPECT_ERROR(archive.read(*archive.root().as<StoredTensor>()), Code::kCorruptData,
               "a bool is neither 0 nor 1");
}

TEST_F(TorchArchiveTest, ExpandedTensorIsNotReadIntoMemory) {
  StoredTensor tensor = describe_tensor(0, at::kFloat, {1});
  tensor.shape = {1'000'000'000'000};
  tensor.stride = {0};
  const TorchArchive archive(write("x.pth", write_torch_archive(tensor, {at::ones({1})})));
  EXPECT_ERROR(archive.read(*archive.root().as<StoredTensor>()), Code::kUnsupported,
               "a tensor of [1000000000000] over 1 stored elements");
}

TEST_F(TorchArchiveTest, OtherFilesAreToldApart) {
  EXPECT_ERROR(TorchArchive{kOldFormat}, Code::kUnsupported,
               "old_format.pth: is in torch.save's format of before 1.6");
  EXPECT_ERROR(TorchArchive(write("x", "")), Code::kCorruptData, "no end of a zip archive");
  EXPECT_ERROR(TorchArchive(write("x", "hello, world, this is text")), Code::kCorruptData,
               "incomplete, or not of torch.save");
  EXPECT_ERROR(TorchArchive(path("missing")), Code::kNotFound, "missing");
}

}  // namespace
}  // namespace fsdp2::ckpt
