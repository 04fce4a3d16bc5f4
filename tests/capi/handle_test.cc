#include "capi/handle.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::capi {
namespace {

std::shared_ptr<int> object(int value) { return std::make_shared<int>(value); }

int value_of(HandleTable& table, uint64_t id, Kind kind) {
  return *std::static_pointer_cast<int>(table.pin(id, kind));
}

template <typename Call>
Error error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return {Code::kInternal, ""};
}

TEST(HandleTable, FindsWhatWasInserted) {
  HandleTable table;
  const uint64_t mesh = table.insert(Kind::kMesh, object(1));
  const uint64_t tensor = table.insert(Kind::kTensor, object(2));
  EXPECT_EQ(value_of(table, mesh, Kind::kMesh), 1);
  EXPECT_EQ(value_of(table, tensor, Kind::kTensor), 2);
  EXPECT_EQ(table.live(), 2);
}

TEST(HandleTable, NullIsToldFromGarbage) {
  HandleTable table;
  const Error null = error_of([&] { table.pin(0, Kind::kTensor); });
  EXPECT_EQ(null.code(), Code::kInvalidHandle);
  EXPECT_EQ(null.message(), "expected a handle of kind tensor, found the null handle");
  const Error garbage = error_of([&] { table.pin(0xdeadbeef, Kind::kTensor); });
  EXPECT_EQ(garbage.code(), Code::kInvalidHandle);
  EXPECT_NE(garbage.message().find("0x00000000deadbeef"), std::string::npos);
}

TEST(HandleTable, AnotherKindIsNamed) {
  HandleTable table;
  const uint64_t mesh = table.insert(Kind::kMesh, object(1));
  const Error error = error_of([&] { table.pin(mesh, Kind::kTensor); });
  EXPECT_EQ(error.code(), Code::kHandleKind);
  EXPECT_EQ(error.message(), "expected a handle of kind tensor, found one of kind mesh");
  table.remove(mesh, Kind::kMesh);
  EXPECT_EQ(error_of([&] { table.pin(mesh, Kind::kTensor); }).code(), Code::kHandleKind);
}

TEST(HandleTable, DestroyedHandlesStayStaleWhenTheirSlotIsUsedAgain) {
  HandleTable table;
  const uint64_t first = table.insert(Kind::kMesh, object(1));
  table.remove(first, Kind::kMesh);
  const uint64_t second = table.insert(Kind::kMesh, object(2));
  EXPECT_EQ(first & 0xffffff, second & 0xffffff);
  EXPECT_EQ(error_of([&] { table.pin(first, Kind::kMesh); }).code(), Code::kStaleHandle);
  EXPECT_EQ(error_of([&] { table.remove(first, Kind::kMesh); }).code(), Code::kStaleHandle);
  EXPECT_EQ(value_of(table, second, Kind::kMesh), 2);
}

TEST(HandleTable, WhatMayBeGoneIsRemovedIfItIsThere) {
  HandleTable table;
  const uint64_t mesh = table.insert(Kind::kMesh, object(1));
  EXPECT_EQ(table.remove_if_there(mesh, Kind::kTensor), nullptr);
  EXPECT_NE(table.remove_if_there(mesh, Kind::kMesh), nullptr);
  EXPECT_EQ(table.remove_if_there(mesh, Kind::kMesh), nullptr);
  EXPECT_EQ(table.remove_if_there(0, Kind::kMesh), nullptr);
  EXPECT_EQ(table.live(), 0);
}

TEST(HandleTable, MadeUpGenerationsAndKindsWereNeverGivenOut) {
  HandleTable table;
  const uint64_t id = table.insert(Kind::kMesh, object(1));
  const uint64_t next_generation = id + (uint64_t{1} << 24);
  const uint64_t other_kind = (id & ~(uint64_t{0xff} << 56)) | uint64_t{2} << 56;
  const uint64_t no_kind = id | uint64_t{0xff} << 56;
  const uint64_t next_slot = id + 1;
  for (const uint64_t made_up : {next_generation, other_kind, no_kind, next_slot}) {
    EXPECT_EQ(error_of([&] { table.pin(made_up, Kind::kMesh); }).code(), Code::kInvalidHandle);
    EXPECT_EQ(error_of([&] { table.pin(made_up, Kind::kTensor); }).code(), Code::kInvalidHandle);
  }
}

TEST(HandleTable, SlotsOutOfGenerationsAreRetired) {
  HandleTable table(HandleTable::kLastGeneration - 1);
  const uint64_t first = table.insert(Kind::kMesh, object(1));
  table.remove(first, Kind::kMesh);
  const uint64_t last = table.insert(Kind::kMesh, object(2));
  EXPECT_EQ(first & 0xffffff, last & 0xffffff);
  table.remove(last, Kind::kMesh);
  const uint64_t elsewhere = table.insert(Kind::kMesh, object(3));
  EXPECT_NE(last & 0xffffff, elsewhere & 0xffffff);
  EXPECT_EQ(error_of([&] { table.pin(first, Kind::kMesh); }).code(), Code::kStaleHandle);
  EXPECT_EQ(error_of([&] { table.pin(last, Kind::kMesh); }).code(), Code::kStaleHandle);
}

TEST(HandleTable, PinnedObjectsOutliveTheirHandle) {
  HandleTable table;
  const uint64_t id = table.insert(Kind::kMesh, object(7));
  const auto pinned = std::static_pointer_cast<int>(table.pin(id, Kind::kMesh));
  table.remove(id, Kind::kMesh);
  EXPECT_EQ(*pinned, 7);
  EXPECT_EQ(pinned.use_count(), 1);
  EXPECT_EQ(table.live(), 0);
}

TEST(HandleTable, AnyBitsCanBeLookedUp) {
  HandleTable table;
  table.insert(Kind::kMesh, object(1));
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const Error error = error_of([&] { table.pin(random(), Kind::kMesh); });
    ASSERT_EQ(error.code(), Code::kInvalidHandle);
  }
}

TEST(HandleTable, EightThreadsCreateUseAndDestroyAtRandom) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20000;
  constexpr size_t kShared = 16;
  HandleTable table;
  std::vector<std::atomic<uint64_t>> shared(kShared);
  std::atomic<int64_t> found{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        std::atomic<uint64_t>& place = shared[random() % kShared];
        const Kind kind = Kind::kTensor;
        try {
          switch (random() % 3) {
            case 0: {
              const uint64_t id = table.insert(kind, object(42));
              const uint64_t before = place.exchange(id);
              if (before != 0) {
                table.remove(before, kind);
              }
              break;
            }
            case 1:
              table.remove(place.load(), kind);
              break;
            default:
              ASSERT_EQ(value_of(table, place.load(), kind), 42);
              ++found;
          }
        } catch (const Error& error) {
          ASSERT_TRUE(error.code() == Code::kStaleHandle || error.code() == Code::kInvalidHandle);
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  int64_t alive = 0;
  for (const auto& place : shared) {
    try {
      table.remove(place.load(), Kind::kTensor);
      ++alive;
    } catch (const Error&) {  // destroyed before, or never made
    }
  }
  EXPECT_EQ(table.live(), 0);
  EXPECT_GT(found.load(), 0);
  EXPECT_LE(alive, static_cast<int64_t>(kShared));
}

}  // namespace
}  // namespace fsdp2::capi
