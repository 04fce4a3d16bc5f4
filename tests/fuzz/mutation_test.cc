// Each reader against thousands of damaged copies of good files: it may take them or refuse them,
// but not crash, hang, run out of memory or fail in another way than by an Error.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/ckpt/safetensors/safetensors_file.h"
#include "core/ckpt/torch/archive.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/ckpt/torch/zip_fixture.h"
#include "tests/core/exported/program_fixture.h"
#include "tests/fuzz/memory_disk.h"
#include "tests/fuzz/mutations.h"
#include "tests/fuzz/readers.h"

namespace fsdp2::fuzz {
namespace {

constexpr int64_t kMaxSeedBytes = 1 << 16;
constexpr int kRandomChanges = 5000;

std::string golden(const std::string& name) {
  return read_text_file("tests/core/ckpt/golden/" + name, kMaxSeedBytes);
}

class Mutation : public FileTest {
 protected:
  // Readers of directories write their files anew for each copy.
  static void SetUpTestSuite() { ::setenv("TMPDIR", memory_disk(), /*overwrite=*/1); }

  // How many damaged copies the reader took.
  template <typename Reader>
  int survive(const std::string& seed, const Reader& reader) {
    EXPECT_TRUE(reader(seed)) << "the seed itself is refused";
    int taken = 0;
    const auto visit = [&](const std::string& changed) { taken += reader(changed) ? 1 : 0; };
    visit_single_changes(seed, visit);
    visit_random_changes(seed, kRandomChanges, visit);
    return taken;
  }

  // The pickle inside a torch.save file of Python's, or of ours.
  std::string pickle_of(const std::string& name) {
    const std::string file = write("seed.pth", golden(name));
    const ckpt::FileBytes mapped(file);
    const auto records = ckpt::read_zip_directory(mapped, 0, mapped.size(), file);
    const ckpt::ZipRecord& record = records.at("data.pkl");
    return contents(file).substr(static_cast<size_t>(record.offset),
                                 static_cast<size_t>(record.bytes));
  }
};

TEST_F(Mutation, PickleOfAStateDict) {
  survive(pickle_of("linear.pth"), read_pickle_of_torch_save);
}

TEST_F(Mutation, PickleOfDTensors) {
  survive(pickle_of("ranks/model_world_size_2_rank_1.pt"), read_pickle_of_torch_save);
}

TEST_F(Mutation, PickleOfValuesOfEveryKind) {
  survive(pickle_of("values.pth"), read_pickle_of_torch_save);
}

TEST_F(Mutation, DcpMetadata) { survive(golden("dcp_two_ranks/.metadata"), read_dcp_metadata); }

// A cut file is never taken, and of the flipped bytes only those in padding and in fields that mean
// nothing: the rest is under checksums.
TEST_F(Mutation, TorchArchive) {
  const std::string seed = golden("linear.pth");
  survive(seed, read_torch_archive);
  for (size_t length = 0; length < seed.size(); ++length) {
    ASSERT_FALSE(read_torch_archive(seed.substr(0, length))) << length;
  }
}

TEST_F(Mutation, TorchArchiveThatIsAPlainZipWithoutChecksums) {
  const std::string pickle = pickle_of("linear.pth");
  std::string zip = ckpt::zip_text({{"x/data.pkl", pickle},
                                    {"x/data/0", std::string(24, '\1')},
                                    {"x/data/1", std::string(8, '\1')},
                                    {"x/version", "3\n"}});
  ckpt::clear_checksums(zip);
  survive(zip, read_torch_archive);
}

TEST_F(Mutation, Safetensors) {
  ckpt::SafetensorsWriter writer(path("seed"),
                                 {{"a.weight", at::kFloat, {2, 3}}, {"b", at::kBFloat16, {4}}});
  writer.append("a.weight", at::ones({2, 3}));
  writer.append("b", at::ones({4}, at::kBFloat16));
  writer.finish();
  survive(contents(path("seed")), read_safetensors);
}

// Without checksums, so that changes get past them.
TEST_F(Mutation, ExportedProgram) {
  std::string seed = exported::ProgramFile().bytes();
  ckpt::clear_checksums(seed);
  survive(seed, read_exported_program);
}

TEST_F(Mutation, FilesOfRanksManifestsAndIndices) {
  const auto seed = [](const std::string& name) {
    return read_text_file("tests/fuzz/seeds/" + name, kMaxSeedBytes);
  };
  survive(seed("per_rank/two_ranks"), read_per_rank_pth);
  survive(seed("sharded/two_ranks"), read_sharded_safetensors);
  survive(seed("manifest/one_item"), read_manifest);
  survive(seed("index/one_file.json"), read_hugging_face_index);
}

TEST_F(Mutation, Records) {
  survive(read_text_file("tests/fuzz/seeds/records/all_kinds.jsonl", kMaxSeedBytes), read_records);
}

TEST_F(Mutation, Images) {
  for (const char* name : {"interlaced.png", "palette.png", "progressive.jpg", "turned-6.jpg"}) {
    survive(read_text_file(std::string("tests/fuzz/seeds/images/") + name, kMaxSeedBytes),
            read_image);
  }
}

TEST_F(Mutation, ConfigOfAModel) {
  for (const char* model : {"tiny-llama", "tiny-qwen3"}) {
    const std::string file = std::string("tests/parity/golden/models/") + model + "/config.json";
    survive(read_text_file(file, kMaxSeedBytes), read_model_config);
  }
}

}  // namespace
}  // namespace fsdp2::fuzz
