// A checkpoint that a save replaces while it is read is not called damaged.
#include "core/ckpt/store/steady_path.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "core/ckpt/store/pending_directory.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

class SteadyPathTest : public FileTest {
 protected:
  void SetUp() override { save(); }

  void save() const {
    PendingDirectory pending(path("out"), {"a test", {}});
    pending.commit();
  }

  [[noreturn]] static void find_damage() { fail(Code::kCorruptData, "item w is damaged"); }

  const std::string said_ = "was replaced or removed while it was read";
};

TEST_F(SteadyPathTest, DamageOfWhatStayedIsDamage) {
  const SteadyPath steady(path("out"));
  EXPECT_ERROR(steady.explain(find_damage), Code::kCorruptData, "item w is damaged");
  EXPECT_EQ(steady.explain([] { return 7; }), 7);
  EXPECT_NO_THROW(steady.check());
}

TEST_F(SteadyPathTest, WhatASaveHasReplacedIsSaidToBe) {
  const SteadyPath steady(path("out"));
  save();
  EXPECT_ERROR(steady.explain(find_damage), Code::kIo, path("out") + ": " + said_);
  EXPECT_ERROR(steady.check(), Code::kIo, said_);
  save();  // which may take the number of the first
  EXPECT_ERROR(steady.check(), Code::kIo, said_);
}

TEST_F(SteadyPathTest, WhatIsRemovedIsSaidToBe) {
  const SteadyPath steady(path("out"));
  std::filesystem::remove_all(path("out"));
  EXPECT_ERROR(steady.explain(find_damage), Code::kIo, said_);
}

TEST_F(SteadyPathTest, WhatNeverWasThereIsTheReadersToTell) {
  const SteadyPath steady(path("missing"));
  EXPECT_ERROR(steady.explain(find_damage), Code::kCorruptData, "damaged");
  EXPECT_NO_THROW(steady.check());
}

}  // namespace
}  // namespace fsdp2::ckpt
