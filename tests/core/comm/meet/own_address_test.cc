// Which address of this machine ranks give to the others, whatever its name stands for.
#include "core/comm/meet/own_address.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <string>

namespace fsdp2 {
namespace {

constexpr char kElsewhere[] = "192.0.2.1";  // of no machine, by RFC 5737

std::string address_after(const Way& told, const Way& own) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  tell_way(*store, told);
  return find_own_address(*store, own);
}

TEST(OwnAddress, IsTheOneFromWhichTheStoreWasReached) {
  EXPECT_EQ(address_after({"10.0.0.2", "10.0.0.1"}, {"10.0.0.2", "10.0.0.1"}), "10.0.0.2");
  EXPECT_EQ(address_after({"10.0.0.2", "10.0.0.1"}, {"fd00::3", "fd00::1"}), "fd00::3");
}

TEST(OwnAddress, IsTheLoopbackIfAllRanksAreOnOneMachine) {
  EXPECT_EQ(address_after({"127.0.0.1", "127.0.1.1"}, {"127.0.0.1", "127.0.1.1"}), "127.0.0.1");
  EXPECT_EQ(address_after({"::1", "::1"}, {"::1", "::1"}), "127.0.0.1");
}

TEST(OwnAddress, OnTheMachineOfTheStoreIsTheOneThatOthersReached) {
  EXPECT_EQ(address_after({"10.0.0.2", "127.0.0.9"}, {"127.0.0.1", "127.0.1.1"}), "127.0.0.9");
}

TEST(OwnAddress, IsUnknownIfOthersReachedOneThatIsNotTheMachines) {
  EXPECT_EQ(address_after({"10.0.0.2", kElsewhere}, {"127.0.0.1", "127.0.0.1"}), "");
  EXPECT_EQ(address_after({"10.0.0.2", "fe80::1%none"}, {"::1", "::1"}), "");
}

}  // namespace
}  // namespace fsdp2
