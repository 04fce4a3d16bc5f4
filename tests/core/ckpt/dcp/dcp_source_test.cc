// DCP directories as they are read: what is compared, how much is read, how many files are open.
#include "core/ckpt/dcp/dcp_source.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/log.h"
#include "tests/core/base/few_descriptors.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/dcp/dcp_fixture.h"

namespace fsdp2::ckpt {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Bytes that this process has read so far, from files and the page cache.
int64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  int64_t value = -1;
  io >> key >> value;
  return key == "rchar:" ? value : -1;
}

class DcpSourceTest : public FileTest {
 protected:
  std::string run() const { return path("run"); }

  static at::Tensor read(const DcpSource& directory, const std::string& name, at::IntArrayRef begin,
                         const at::Tensor& out) {
    directory.read(*directory.find(name), begin, out);
    return out;
  }

  void flip(const std::string& file, size_t at) const {
    std::string bytes = contents(run() + "/" + file);
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    write("run/" + file, bytes);
  }
};

// Boxes and memory of every kind that reading tells apart, for a tensor [64, 96].
std::vector<std::pair<std::string, at::Tensor>> targets() {
  return {{"the same", at::empty({64, 96})},
          {"another dtype", at::empty({64, 96}, at::kBFloat16)},
          {"other strides", at::empty({96, 64}).t()},
          {"rows", at::empty({5, 96})},
          {"columns", at::empty({64, 7})}};
}

TEST_F(DcpSourceTest, FlippedBitIsFoundWhateverItIsReadInto) {
  const at::Tensor stored = at::randn({64, 96});
  for (const bool has_manifest : {false, true}) {
    DcpBuilder builder(run());
    builder.add_tensor({"w"}, stored);
    builder.write();
    if (has_manifest) {
      rebuild_manifest(run());
    }
    const std::string file = contents(run() + "/__0_0.distcp");
    const std::string values(static_cast<const char*>(stored.const_data_ptr()), stored.nbytes());
    const size_t data = file.find(values);
    ASSERT_NE(data, std::string::npos);
    for (const auto& target : targets()) {
      SCOPED_TRACE(target.first + (has_manifest ? ", with a manifest" : ", without"));
      const at::Tensor& out = target.second;
      const DcpSource directory(run());
      const at::Tensor expected = stored.narrow(0, 0, out.size(0)).narrow(1, 0, out.size(1));
      EXPECT_TRUE(at::equal(read(directory, "w", {0, 0}, out), expected.to(out.scalar_type())));
    }
    flip("__0_0.distcp", data + 10);
    for (const auto& target : targets()) {
      SCOPED_TRACE(target.first);
      const at::Tensor& out = target.second;
      const DcpSource directory(run());
      EXPECT_ERROR(read(directory, "w", {0, 0}, out), Code::kCorruptData, "is damaged");
    }
    std::filesystem::remove_all(run());
  }
}

// Mapped memory would end the process where the file has ended.
TEST_F(DcpSourceTest, FileThatIsCutAfterOpeningIsAnErrorOfEveryRead) {
  for (const bool has_manifest : {false, true}) {
    for (const bool is_open : {false, true}) {
      DcpBuilder builder(run());
      builder.add_tensor({"first"}, at::ones({3}));
      builder.add_tensor({"w"}, at::randn({64, 96}));
      builder.add_object({"o"}, PythonValue(3));
      builder.write();
      if (has_manifest) {
        rebuild_manifest(run());
      }
      const DcpSource directory(run());
      if (is_open) {
        read(directory, "first", {0}, at::empty({3}));
      }
      std::filesystem::resize_file(run() + "/__0_0.distcp", 4096);
      for (const auto& target : targets()) {
        SCOPED_TRACE(target.first);
        const Error error = error_of([&] { read(directory, "w", {0, 0}, target.second); });
        EXPECT_EQ(error.code(), is_open ? Code::kIo : Code::kCorruptData) << error.message();
      }
      EXPECT_THROW(directory.read_object(*directory.find("o")), Error);
      EXPECT_THROW(directory.verify(), Error);
      std::filesystem::remove_all(run());
    }
  }
}

TEST_F(DcpSourceTest, MayHaveMoreFilesThanAProcessDescriptors) {
  DcpBuilder builder(run());
  builder.spread(200);
  builder.add_tensor({"w"}, at::arange(200 * 3, at::kFloat).view({200, 3}), 200);
  builder.write();
  const FewDescriptors few(64);
  for (const bool has_manifest : {false, true}) {
    if (has_manifest) {
      EXPECT_NO_THROW(rebuild_manifest(run()));
    }
    const DcpSource directory(run());
    EXPECT_TRUE(at::equal(read(directory, "w", {0, 0}, at::empty({200, 3})),
                          at::arange(200 * 3, at::kFloat).view({200, 3})));
    EXPECT_NO_THROW(directory.verify());
  }
}

// One of four ranks, of a checkpoint of another number of them.
TEST_F(DcpSourceTest, AQuarterOfTheTensorsIsReadFromAboutAQuarterOfTheBytes) {
  if (bytes_read() < 0) {
    GTEST_SKIP() << "the system does not count bytes that are read";
  }
  DcpBuilder builder(run());
  builder.spread(3);
  for (const char* name : {"a", "b"}) {
    builder.add_tensor({name}, at::randn({6144, 1024}), 3, /*with_checksums=*/false);  // 24 MiB
  }
  builder.write();
  rebuild_manifest(run());
  for (int64_t rank = 0; rank < 4; ++rank) {
    const DcpSource directory(run());
    const int64_t before = bytes_read();
    for (const char* name : {"a", "b"}) {
      read(directory, name, {rank * 1536, 0}, at::empty({1536, 1024}));
    }
    const int64_t read = bytes_read() - before;
    EXPECT_GE(read, 12 * kMiB);
    // At most three blocks more of each of the up to two chunks that a box lies in, and their ends.
    EXPECT_LE(read, (12 + 2 * 2 * 3 + 1) * kMiB);
  }
}

TEST_F(DcpSourceTest, ItemsThatNothingIsComparedWithAreLoggedOnce) {
  DcpBuilder builder(run());
  builder.add_tensor({"a"}, at::ones({3}), 1, /*with_checksums=*/false);
  builder.add_tensor({"b"}, at::ones({3}), 1, /*with_checksums=*/false);
  builder.add_tensor({"c"}, at::ones({3}));
  builder.write();
  std::vector<std::string> said;
  set_log_sink(LogLevel::kWarning,
               [&](const LogRecord& record) { said.push_back(record.message); });
  {
    const LogScope scope;
    const DcpSource directory(run());
    read(directory, "c", {0}, at::empty({3}));
    EXPECT_TRUE(said.empty());
    read(directory, "a", {0}, at::empty({3}));
    read(directory, "b", {0}, at::empty({3}));
    ASSERT_EQ(said.size(), 1U);
    EXPECT_NE(said[0].find(run()), std::string::npos) << said[0];
    rebuild_manifest(run());
    ASSERT_EQ(said.size(), 2U);
    EXPECT_NE(said[1].find("2 of 3 items"), std::string::npos) << said[1];
  }
  set_log_sink(LogLevel::kWarning, {});
}

TEST_F(DcpSourceTest, TensorThatItsItemCannotHoldIsRefusedBeforeAnyMemoryIsTaken) {
  DcpMetadata metadata;
  metadata.add({"model.w",
                {"model", "w"},
                ChunkedTensor{at::kFloat, {int64_t{1} << 40}, {{{0}, {int64_t{1} << 40}}}},
                {{"__0_0.distcp", 0, 100, {}}}});
  write("run/__0_0.distcp", std::string(100, 'x'));
  write("run/.metadata", encode_dcp_metadata(metadata));
  EXPECT_ERROR(DcpSource(path("run")), Code::kCorruptData,
               "__0_0.distcp: item model.w [0] has 100 bytes, its values alone take 4398046511104");
}

}  // namespace
}  // namespace fsdp2::ckpt
