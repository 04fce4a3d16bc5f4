#include "capi/sized_struct.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fsdp2::capi {

// A struct as it was first released, as it is now, and as a later version has it.
struct First {
  uint32_t struct_size;
  int32_t a;
};
struct Now {
  uint32_t struct_size;
  int32_t a;
  int64_t b;
};
struct Later {
  uint32_t struct_size;
  int32_t a;
  int64_t b;
  int64_t c;
};
template <>
inline constexpr size_t kFirstSize<Now> = sizeof(First);

namespace {

constexpr Now kDefaults{sizeof(Now), 1, 2};

template <typename Call>
Code code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code{0};
}

TEST(SizedStruct, NullGivesTheDefaults) {
  const Now read = read_struct<Now>(nullptr, kDefaults, "options");
  EXPECT_EQ(read.a, 1);
  EXPECT_EQ(read.b, 2);
}

TEST(SizedStruct, AnOlderCallerGetsDefaultsForWhatItLacks) {
  const First first{sizeof(First), 7};
  const Now read = read_struct(reinterpret_cast<const Now*>(&first), kDefaults, "options");
  EXPECT_EQ(read.struct_size, sizeof(Now));
  EXPECT_EQ(read.a, 7);
  EXPECT_EQ(read.b, 2);
}

TEST(SizedStruct, ALaterCallerIsFineWithAnUnusedTail) {
  const Later later{sizeof(Later), 7, 8, 0};
  const Now read = read_struct(reinterpret_cast<const Now*>(&later), kDefaults, "options");
  EXPECT_EQ(read.a, 7);
  EXPECT_EQ(read.b, 8);
}

TEST(SizedStruct, AUsedTailIsUnsupported) {
  const Later later{sizeof(Later), 7, 8, int64_t{1} << 56};
  const auto* in = reinterpret_cast<const Now*>(&later);
  EXPECT_EQ(code_of([&] { read_struct(in, kDefaults, "options"); }), Code::kUnsupported);
}

TEST(SizedStruct, SizesThatNoVersionHadAreRefused) {
  for (const uint32_t size : {0u, 1u, 7u, 4097u, UINT32_MAX}) {
    Now in = kDefaults;
    in.struct_size = size;
    EXPECT_EQ(code_of([&] { read_struct(&in, kDefaults, "options"); }), Code::kStructSize) << size;
    EXPECT_EQ(code_of([&] { check_out_struct(&in, "out"); }), Code::kStructSize) << size;
    EXPECT_EQ(code_of([&] { init_struct(&in, size, kDefaults, "options"); }), Code::kStructSize);
  }
}

TEST(SizedStruct, AnOlderCallersOutputIsNotOverrun) {
  struct {
    First out;
    int64_t guard;
  } memory{{sizeof(First), 0}, -1};
  fill_struct(reinterpret_cast<Now*>(&memory.out), Now{sizeof(Now), 5, 6});
  EXPECT_EQ(memory.out.struct_size, sizeof(First));
  EXPECT_EQ(memory.out.a, 5);
  EXPECT_EQ(memory.guard, -1);
}

TEST(SizedStruct, ALaterCallerLearnsWhatWasFilled) {
  Later out{sizeof(Later), 0, 0, 99};
  fill_struct(reinterpret_cast<Now*>(&out), Now{sizeof(Now), 5, 6});
  EXPECT_EQ(out.struct_size, sizeof(Now));
  EXPECT_EQ(out.b, 6);
  EXPECT_EQ(out.c, 99);
}

TEST(SizedStruct, InitWritesAtMostTheGivenSize) {
  struct {
    First out;
    int64_t guard;
  } memory{{0, 0}, -1};
  init_struct(reinterpret_cast<Now*>(&memory.out), sizeof(First), kDefaults, "options");
  EXPECT_EQ(memory.out.struct_size, sizeof(First));
  EXPECT_EQ(memory.out.a, 1);
  EXPECT_EQ(memory.guard, -1);
  Later later{0, 0, 0, 99};
  init_struct(reinterpret_cast<Now*>(&later), sizeof(Later), kDefaults, "options");
  EXPECT_EQ(later.struct_size, sizeof(Later));
  EXPECT_EQ(later.b, 2);
  EXPECT_EQ(later.c, 0);
}

}  // namespace
}  // namespace fsdp2::capi
