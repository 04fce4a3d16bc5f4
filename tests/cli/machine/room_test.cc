// Jobs that a machine has no room for, by what it lacks.
#include "cli/run/room.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fsdp2::cli {
namespace {

using ::testing::HasSubstr;

TEST(Room, WithoutLimitsIsForAnyNumberOfRanks) { EXPECT_EQ(shortage(1 << 20, {}), ""); }

TEST(Room, IsShortOfFilesOfTheLauncher) {
  Room room;
  room.files = {1024, 10};
  EXPECT_EQ(shortage(505, room), "");
  EXPECT_THAT(shortage(506, room), HasSubstr("506 ranks need 1026 open files of the launcher"));
  EXPECT_THAT(shortage(506, room), HasSubstr("and it may have 1024: ulimit -n 1026"));
  room.hard_files = 1025;
  EXPECT_THAT(shortage(506, room), HasSubstr("and it may have 1024: raise the hard limit"));
}

TEST(Room, IsShortOfProcesses) {
  Room room;
  room.user = {100, 60};
  EXPECT_EQ(shortage(40, room), "");
  EXPECT_EQ(shortage(41, room),
            "41 ranks need as many processes, and this user may have 100, with 60 there already: "
            "ulimit -u, or fewer ranks");
  room = {};
  room.group = {64, 60};
  EXPECT_THAT(shortage(5, room), HasSubstr("the control group may have 64, with 60 there"));
  room = {};
  room.system = {32768, 300};
  room.system_key = "kernel.pid_max";
  EXPECT_EQ(shortage(32468, room), "");
  EXPECT_THAT(shortage(32469, room), HasSubstr("raise kernel.pid_max (sysctl)"));
}

TEST(Room, OfThisMachineIsForOneRank) {
  const Room room = room_of_machine();
  EXPECT_GE(room.files.now, 3);
  EXPECT_GE(room.system.now, 1);
  EXPECT_LT(room.system.left(), 1e9);
  EXPECT_EQ(shortage(1, room), "");
}

}  // namespace
}  // namespace fsdp2::cli
