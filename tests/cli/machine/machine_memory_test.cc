// The memory of a control group, from files like the kernel's.
#include "cli/machine/machine_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "cli/machine/scratch_directory.h"

namespace fsdp2::cli {
namespace {

class ControlGroup : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(groups_.path(name)).parent_path());
    groups_.write(name, text);
  }
  MachineMemory memory() const { return machine_memory(groups_.path("")); }

  const ScratchDirectory groups_{"fsdp2-groups"};
};

TEST_F(ControlGroup, WithoutALimitHasWhatTheMachineHas) {
  EXPECT_FALSE(memory().is_limited());
  EXPECT_GT(memory().free(), 0);
  EXPECT_EQ(memory().free(), memory().available);
  write("memory.max", "max\n");
  EXPECT_FALSE(memory().is_limited());
}

TEST_F(ControlGroup, IsNotFullOfFilesThatNobodyUses) {
  write("memory.max", "5000000\n");
  write("memory.current", "4500000\n");
  EXPECT_EQ(memory().free(), 500000);
  write("memory.stat", "anon 400000\nactive_file 100000\ninactive_file 4000000\n");
  EXPECT_TRUE(memory().is_limited());
  EXPECT_EQ(memory().used, 500000);
  EXPECT_EQ(memory().free(), 4500000);
}

TEST_F(ControlGroup, IsReadInItsFirstVersionToo) {
  write("memory/memory.limit_in_bytes", "5000000\n");
  write("memory/memory.usage_in_bytes", "4500000\n");
  write("memory/memory.stat", "inactive_file 7\ntotal_inactive_file 4000000\n");
  EXPECT_EQ(memory().free(), 4500000);
}

}  // namespace
}  // namespace fsdp2::cli
