// Every byte of a checkpoint flipped, every file cut at every length: an error that says where, or
// values that are right, and nothing else.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/ckpt/dcp/dcp_source.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"

namespace fsdp2::ckpt {
namespace {

class BrokenCheckpoint : public FileTest {
 protected:
  BrokenCheckpoint() { save_example(path("run"), 2, 3); }

  // What loading tells: nothing if all values are right.
  std::string load() const {
    try {
      const DcpSource run(path("run"));
      return holds_example(run, 3) ? "" : "WRONG VALUES";
    } catch (const Error& error) {
      return error.message();
    }
  }

  // Damages one file in many ways, each of which must be told by the file's name; in a data file
  // also by an item's.
  template <typename Damage>
  void check(const std::string& name, size_t count, const Damage& damage) {
    const std::string file = path("run/" + name);
    const std::string bytes = contents(file);
    for (size_t i = 0; i < (count == 0 ? bytes.size() : count); ++i) {
      write("run/" + name, damage(bytes, i));
      const std::string told = load();
      ASSERT_NE(told, "WRONG VALUES") << name << " at " << i;
      ASSERT_NE(told.find(name), std::string::npos) << name << " at " << i << ": " << told;
      if (name.find("distcp") != std::string::npos) {
        ASSERT_TRUE(told.find("item") != std::string::npos) << told;
      }
    }
    write("run/" + name, bytes);
    ASSERT_EQ(load(), "");
  }

  static std::string flip(std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    return bytes;
  }
  static std::string cut(const std::string& bytes, size_t length) {
    return bytes.substr(0, length);
  }
};

const std::vector<std::string> kFiles = {".metadata", "fsdp2_manifest", "__0_0.distcp",
                                         "__1_0.distcp"};

TEST_F(BrokenCheckpoint, WithAnyByteFlippedSaysWhere) {
  for (const std::string& name : kFiles) {
    check(name, 0, flip);
  }
}

TEST_F(BrokenCheckpoint, CutAtAnyLengthSaysWhere) {
  for (const std::string& name : kFiles) {
    check(name, 0, cut);
  }
}

TEST_F(BrokenCheckpoint, WithAMissingFileSaysWhich) {
  for (const std::string& name : {std::string("__0_0.distcp"), std::string(".metadata")}) {
    const std::string bytes = contents(path("run/" + name));
    std::filesystem::remove(path("run/" + name));
    EXPECT_NE(load().find(name), std::string::npos) << load();
    write("run/" + name, bytes);
  }
}

TEST_F(BrokenCheckpoint, WrittenOverByAnotherProgramTellsTheRemedyAndItWorks) {
  save_example(path("other"), 1, 4);
  for (const char* name : {".metadata", "__0_0.distcp"}) {
    std::filesystem::copy_file(path("other") + "/" + name, path("run") + "/" + name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_NE(load().find("--rebuild-manifest"), std::string::npos) << load();
  rebuild_manifest(path("run"));
  EXPECT_TRUE(holds_example(DcpSource(path("run")), 4));
}

TEST_F(BrokenCheckpoint, WithoutAManifestIsCheckedByTheArchivesOwnChecksums) {
  std::filesystem::remove(path("run/fsdp2_manifest"));
  EXPECT_EQ(load(), "");
  const std::string bytes = contents(path("run/__1_0.distcp"));
  for (size_t i = 0; i < bytes.size(); ++i) {
    write("run/__1_0.distcp", flip(bytes, i));
    ASSERT_NE(load(), "WRONG VALUES") << i;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
