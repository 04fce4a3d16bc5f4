// The fuzzers' seeds under the compiler of the rest: good files are taken, all others refused.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "core/base/file.h"
#include "tests/fuzz/readers.h"

namespace fsdp2::fuzz {
namespace {

using Reader = bool (*)(const std::string& bytes);

// The names of the seeds that the reader takes.
std::set<std::string> taken(const std::string& target, const Reader& reader) {
  std::set<std::string> names;
  for (const auto& seed : std::filesystem::directory_iterator("tests/fuzz/seeds/" + target)) {
    if (reader(read_text_file(seed.path(), 1 << 16))) {
      names.insert(seed.path().filename());
    }
  }
  return names;
}

using Names = std::set<std::string>;

TEST(Seeds, OfConfigsAreTakenIfGood) {
  EXPECT_EQ(taken("config", read_model_config),
            (Names{"absurd_sizes.json", "encoder.json", "llama.json", "qwen2.json",
                   "qwen2_5_vl.json", "qwen3.json", "qwen3_moe.json", "qwen3_vl.json"}));
}

TEST(Seeds, OfDcpDirectoriesAreTakenIfGood) {
  EXPECT_EQ(taken("dcp", read_dcp_directory), Names{"two_chunks"});
}

TEST(Seeds, OfExportedProgramsAreTakenIfGood) {
  EXPECT_EQ(taken("exported", read_exported_program), (Names{"small", "without_gradients"}));
}

TEST(Seeds, OfPicklesAreTakenIfGood) {
  EXPECT_EQ(taken("pickle", read_pickle_of_torch_save), (Names{"counter", "protocol_4", "values"}));
}

TEST(Seeds, OfSafetensorsAreTakenIfGood) {
  EXPECT_EQ(taken("safetensors", read_safetensors), Names{"two_tensors"});
}

TEST(Seeds, OfFilesOfRanksAreTakenIfGood) {
  EXPECT_EQ(taken("per_rank", read_per_rank_pth), Names{"two_ranks"});
  EXPECT_EQ(taken("sharded", read_sharded_safetensors), Names{"two_ranks"});
}

TEST(Seeds, OfManifestsAreTakenIfGood) {
  EXPECT_EQ(taken("manifest", read_manifest), (Names{"one_item", "with_its_first_line"}));
}

TEST(Seeds, OfImagesAreTakenIfGood) {
  EXPECT_EQ(taken("images", read_image),
            (Names{"interlaced.png", "palette.png", "progressive.jpg", "turned-6.jpg"}));
}

TEST(Seeds, OfIndicesAreTakenIfGood) {
  EXPECT_EQ(taken("index", read_hugging_face_index), Names{"one_file.json"});
}

TEST(Seeds, OfRecordsAreTakenIfGood) {
  EXPECT_EQ(taken("records", read_records), Names{"all_kinds.jsonl"});
}

TEST(Seeds, OfRunConfigurationsAreTakenIfGood) {
  EXPECT_EQ(taken("yaml", read_run_configuration),
            (Names{"merged.yaml", "mm.yaml", "mm_legacy.yaml", "plain.yaml", "roll.yaml",
                   "train300M_fsdp.yaml", "train90M_fsdp.yaml", "unclosed.yaml"}));
}

TEST(Seeds, OfZipsAreTakenIfGood) {
  EXPECT_EQ(taken("zip", read_torch_archive), (Names{"plain", "torch_save"}));
}

}  // namespace
}  // namespace fsdp2::fuzz
