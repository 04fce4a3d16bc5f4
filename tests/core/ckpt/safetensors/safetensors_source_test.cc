// Safetensors files read box by box: what they carry of checksums is compared, others load as they
// are.
#include "core/ckpt/safetensors/safetensors_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/safetensors/rows.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr int64_t kRows = 700;  // two blocks and a part of one
constexpr int64_t kColumns = 1000;

class SafetensorsSourceTest : public SafetensorsFixture {
 protected:
  // Flips a bit of the byte `at` of the tensor.
  void flip(const std::string& file, int64_t at) const {
    const int64_t offset = SafetensorsFile(file).find("w")->offset;
    std::string bytes = contents(file);
    bytes[static_cast<size_t>(offset + at)] ^= 1;
    write("x.safetensors", bytes);
  }

  static at::Tensor read(const std::string& file, at::IntArrayRef begin, const at::Tensor& out) {
    const SafetensorsSource state(file, SafetensorsFiles::kOne);
    state.read(*state.find("w"), begin, out);
    return out;
  }
};

TEST_F(SafetensorsSourceTest, FlippedBitIsFoundWhateverItIsReadInto) {
  const at::Tensor stored = at::randn({kRows, kColumns});
  const std::string file = save({{"w", stored}, {"empty", at::empty({0, 3})}});
  const std::vector<std::pair<const char*, at::Tensor>> targets = {
      {"the same", at::empty({kRows, kColumns})},
      {"another dtype", at::empty({kRows, kColumns}, at::kBFloat16)},
      {"other strides", at::empty({kColumns, kRows}).t()},
      {"the first rows", at::empty({3, kColumns})},
      {"columns", at::empty({kRows, 2})}};
  for (const auto& target : targets) {
    SCOPED_TRACE(target.first);
    const at::Tensor& out = target.second;
    const at::Tensor expected = stored.narrow(0, 0, out.size(0)).narrow(1, 0, out.size(1));
    EXPECT_TRUE(at::equal(read(file, {0, 0}, out), expected.to(out.scalar_type())));
  }
  flip(file, 5);
  for (const auto& target : targets) {
    SCOPED_TRACE(target.first);
    const at::Tensor& out = target.second;
    EXPECT_ERROR(read(file, {0, 0}, out), Code::kCorruptData, "x.safetensors: item w is damaged");
  }
  const SafetensorsSource state(file, SafetensorsFiles::kOne);
  EXPECT_ERROR(state.verify(), Code::kCorruptData, "item w is damaged");
  // Rows in other blocks are what was written.
  EXPECT_TRUE(at::equal(read(file, {600, 0}, at::empty({3, kColumns})), stored.narrow(0, 600, 3)));
}

TEST_F(SafetensorsSourceTest, FlippedBitIsFoundByReadersOfModels) {
  const std::string file = save({{"w", at::randn({kRows, kColumns})}});
  flip(file, 5);
  const SafetensorsFile damaged(file);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor out = at::empty({2, kColumns}, dtype);
    EXPECT_ERROR(read_rows(damaged, *damaged.find("w"), {kRows, kColumns}, "x", 0, out),
                 Code::kCorruptData, "item w is damaged");
  }
}

TEST_F(SafetensorsSourceTest, FileWithoutChecksumsIsReadAsItIs) {
  const std::string file =
      write("x.safetensors",
            safetensors_text(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "ab"));
  const at::Tensor out = read(file, {0}, at::empty({2}, at::kByte));
  EXPECT_EQ(out[1].item<uint8_t>(), 'b');
  EXPECT_NO_THROW(SafetensorsSource(file, SafetensorsFiles::kOne).verify());
}

TEST_F(SafetensorsSourceTest, ChecksumsThatDoNotFitTheTensorsAreTold) {
  const auto file_with = [&](const std::string& checksums) {
    return write("x.safetensors",
                 safetensors_text(R"({"__metadata__":{"fsdp2_checksums":")" + checksums +
                                      R"("},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                  "ab"));
  };
  EXPECT_ERROR(SafetensorsFile(file_with("no JSON")), Code::kCorruptData, "fsdp2_checksums");
  EXPECT_ERROR(SafetensorsFile(file_with(R"({\"block_bytes\":1,\"tensors\":{}})")),
               Code::kUnsupported, "newer version");
  EXPECT_ERROR(SafetensorsFile(file_with(R"({\"block_bytes\":1048576,\"tensors\":{}})")),
               Code::kCorruptData, "tensor w has 2 bytes, but checksums of 0 blocks");
  EXPECT_ERROR(
      SafetensorsFile(file_with(R"({\"block_bytes\":1048576,\"tensors\":{\"w\":\"12\"}})")),
      Code::kCorruptData, "of w are not what was written");
}

TEST_F(SafetensorsSourceTest, FileThatIsCutAfterOpeningIsAnError) {
  const std::string file = save({{"w", at::randn({kRows, kColumns})}, {"v", at::ones({3})}});
  for (const bool is_open : {false, true}) {
    const SafetensorsSource state(file, SafetensorsFiles::kOne);
    if (is_open) {
      state.read(*state.find("w"), {0, 0}, at::empty({1, 1}));
    }
    std::filesystem::resize_file(file, 1000);
    for (const at::Tensor& out : {at::empty({kRows, kColumns}), at::empty({kColumns, kRows}).t()}) {
      EXPECT_EQ(error_of([&] { state.read(*state.find("w"), {0, 0}, out); }).code(), Code::kIo);
    }
    EXPECT_EQ(error_of([&] { state.verify(); }).code(), Code::kIo);
    save({{"w", at::randn({kRows, kColumns})}, {"v", at::ones({3})}});
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
