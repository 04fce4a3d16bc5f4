#include "core/ckpt/safetensors/rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

class SafetensorsRows : public SafetensorsFixture {
 protected:
  // Rows [first, first + rows) of a [4, 3] tensor of 0 ... 11 in `stored`, read as `wanted`.
  at::Tensor rows(at::ScalarType stored, int64_t first, int64_t rows, at::ScalarType wanted) {
    const SafetensorsFile file(save({{"a", at::arange(12, stored).view({4, 3})}}));
    at::Tensor out = at::full({rows, 3}, -1.0, wanted);
    read_rows(file, *file.find("a"), {4, 3}, "config.json", first, out);
    return out;
  }
};

TEST_F(SafetensorsRows, ReadsJustTheRowsAskedFor) {
  EXPECT_TRUE(rows(at::kFloat, 1, 2, at::kFloat).equal(at::arange(3, 9, at::kFloat).view({2, 3})));
  EXPECT_TRUE(rows(at::kFloat, 0, 4, at::kFloat).equal(at::arange(12, at::kFloat).view({4, 3})));
  EXPECT_TRUE(rows(at::kFloat, 3, 1, at::kFloat).equal(at::arange(9, 12, at::kFloat).view({1, 3})));
}

TEST_F(SafetensorsRows, ReadsNoRowsAnywhere) {
  EXPECT_EQ(rows(at::kFloat, 0, 0, at::kFloat).numel(), 0);
  EXPECT_EQ(rows(at::kFloat, 4, 0, at::kFloat).numel(), 0);
}

TEST_F(SafetensorsRows, ConvertsBetweenAllFloatDtypes) {
  for (const at::ScalarType stored : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    for (const at::ScalarType wanted : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      EXPECT_TRUE(rows(stored, 1, 2, wanted).equal(at::arange(3, 9, wanted).view({2, 3})));
    }
  }
}

TEST_F(SafetensorsRows, RoundsToNearestEvenAsLibTorchDoes) {
  const at::Tensor values = at::randn({1000});
  const SafetensorsFile file(save({{"a", values}}));
  const at::Tensor out = at::empty({1000}, at::kBFloat16);
  read_rows(file, *file.find("a"), {1000}, "test", 0, out);
  EXPECT_TRUE(out.equal(values.to(at::kBFloat16)));
}

TEST_F(SafetensorsRows, ConvertsTensorsLargerThanItsBuffer) {
  const at::Tensor values = at::randn({3, 100'000});
  const SafetensorsFile file(save({{"a", values}}));
  const at::Tensor out = at::empty({2, 100'000}, at::kDouble);
  read_rows(file, *file.find("a"), {3, 100'000}, "test", 1, out);
  EXPECT_TRUE(out.equal(values.slice(0, 1, 3).to(at::kDouble)));
}

// With and without checksums, whose blocks do not begin where threads do.
TEST_F(SafetensorsRows, AreTheSameWithAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  const at::Tensor values = at::randn({5000, 1001});
  for (const bool checked : {true, false}) {
    std::string bytes = contents(save({{"a", values}}));
    if (!checked) {
      bytes.replace(bytes.find(kSafetensorsChecksums), 1, "x");
    }
    const SafetensorsFile file(write("file", bytes));
    EXPECT_EQ(file.find("a")->checksums.empty(), !checked);
    for (const int threads : {1, 2, 3, 8}) {
      at::set_num_threads(threads);
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        const at::Tensor out = at::empty({4990, 1001}, dtype);
        read_rows(file, *file.find("a"), {5000, 1001}, "test", 7, out);
        EXPECT_TRUE(out.equal(values.narrow(0, 7, 4990).to(dtype))) << threads;
      }
    }
  }
  at::set_num_threads(before);
}

TEST_F(SafetensorsRows, WritesAViewInPlaceAndNothingElse) {
  const SafetensorsFile file(save({{"a", at::ones({4})}}));
  const at::Tensor whole = at::zeros({6});
  read_rows(file, *file.find("a"), {4}, "test", 0, whole.slice(0, 1, 4));
  EXPECT_TRUE(whole.equal(at::tensor({0.F, 1.F, 1.F, 1.F, 0.F, 0.F})));
}

TEST_F(SafetensorsRows, FillsALeafThatRequiresGrad) {
  const SafetensorsFile file(save({{"a", at::ones({4}, at::kHalf)}}));
  const at::Tensor leaf = at::zeros({4}).set_requires_grad(true);
  read_rows(file, *file.find("a"), {4}, "test", 0, leaf);
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_EQ(leaf.detach().sum().item<float>(), 4.0F);
}

TEST_F(SafetensorsRows, ZeroDimTensorIsOneRow) {
  const SafetensorsFile file(save({{"a", at::scalar_tensor(2.5)}}));
  const at::Tensor scalar = at::zeros({});
  read_rows(file, *file.find("a"), {}, "test", 0, scalar);
  EXPECT_EQ(scalar.item<float>(), 2.5F);
  const at::Tensor row = at::zeros({1});
  read_rows(file, *file.find("a"), {}, "test", 0, row);
  EXPECT_EQ(row.item<float>(), 2.5F);
}

TEST_F(SafetensorsRows, RefusesWhatDoesNotFit) {
  const SafetensorsFile file(save({{"a", at::zeros({4, 3})}}));
  const SafetensorsEntry& entry = *file.find("a");
  const auto read = [&](at::IntArrayRef shape, int64_t first, const at::Tensor& out) {
    read_rows(file, entry, shape, "config.json", first, out);
  };
  EXPECT_ERROR(read({4, 2}, 0, at::zeros({4, 2})), Code::kCorruptData,
               "a: config.json says [4, 2], " + file.path() + " has [4, 3]");
  EXPECT_ERROR(read({12}, 0, at::zeros({12})), Code::kCorruptData, "config.json says [12]");
  EXPECT_ERROR(read({4, 3}, 3, at::zeros({2, 3})), Code::kInvalidArgument,
               "a: cannot read rows from 3 on of [4, 3] into a tensor of [2, 3]");
  EXPECT_ERROR(read({4, 3}, -1, at::zeros({2, 3})), Code::kInvalidArgument, "rows from -1");
  EXPECT_ERROR(read({4, 3}, INT64_MAX, at::zeros({2, 3})), Code::kInvalidArgument, "cannot read");
  EXPECT_ERROR(read({4, 3}, 0, at::zeros({2, 4})), Code::kInvalidArgument, "cannot read");
  EXPECT_ERROR(read({4, 3}, 0, at::zeros({3, 2}).t()), Code::kInvalidArgument, "non-contiguous");
  EXPECT_ERROR(read({4, 3}, 0, at::zeros({2, 3}, at::kLong)), Code::kInvalidArgument,
               "float tensor, found a Long");
}

TEST_F(SafetensorsRows, RefusesToConvertIntegers) {
  const SafetensorsFile file(save({{"a", at::zeros({4}, at::kLong)}}));
  EXPECT_ERROR(read_rows(file, *file.find("a"), {4}, "test", 0, at::zeros({4})), Code::kUnsupported,
               "a: is I64 in " + file.path());
}

TEST_F(SafetensorsRows, FileThatIsCutLaterIsAnErrorAndNotACrash) {
  const SafetensorsFile file(save({{"a", at::ones({10000})}}));
  ASSERT_EQ(::truncate(file.path().c_str(), 1000), 0);
  at::Tensor out = at::empty({10000});
  EXPECT_ERROR(read_rows(file, *file.find("a"), {10000}, "test", 0, out), Code::kIo,
               "x.safetensors: ends at byte 1000");
}

}  // namespace
}  // namespace fsdp2::ckpt
