#include "capi/fields.h"

#include <gtest/gtest.h>

#include <string>

namespace fsdp2::capi {

struct ListedOptions {
  uint32_t struct_size;
  int32_t flag;
  int32_t rank;
  int32_t dtype;
  int64_t count;
  double rate;
  const char* text;
  int32_t kind;
  int32_t reserved;
};
struct ForgottenField {
  uint32_t struct_size;
  int32_t flag;
  int64_t forgotten;
};

namespace {

int32_t read_kind(int32_t kind) {
  FSDP2_CHECK(kind == 1 || kind == 2, Code::kInvalidArgument, "options.kind: found {}", kind);
  return kind;
}

}  // namespace

template <>
inline constexpr size_t kFirstSize<ListedOptions> = sizeof(ListedOptions);
template <>
inline constexpr auto kFields<ListedOptions> =
    std::tuple(Field("rate", &ListedOptions::rate, NumberRange{0.0, 1.0}),
               Field("flag", &ListedOptions::flag, Flag()),
               Field("rank", &ListedOptions::rank, PerRank(Range{0, 7})),
               Field("dtype", &ListedOptions::dtype, FloatDtypeOrKeep()),
               Field("count", &ListedOptions::count, Range{1, 9}),
               Field("text", &ListedOptions::text, Elsewhere()),
               Field("kind", &ListedOptions::kind, ReadBy<read_kind>()),
               Field("reserved", &ListedOptions::reserved, Reserved()));
template <>
inline constexpr auto kFields<ForgottenField> =
    std::tuple(Field("flag", &ForgottenField::flag, Flag()));

static_assert(listed_bytes<ListedOptions>() == sizeof(ListedOptions));
static_assert(listed_bytes<ForgottenField>() != sizeof(ForgottenField),
              "read_options of such a struct does not compile");

namespace {

constexpr ListedOptions kListedDefaults = {
    sizeof(ListedOptions), 0, 3, FSDP2_DTYPE_BF16, 2, 0.5, nullptr, 1, 0};

// What is wrong with the defaults after `change`.
template <typename Change>
std::string refusal(const Change& change) {
  ListedOptions options = kListedDefaults;
  change(options);
  try {
    read_options(&options, kListedDefaults);
  } catch (const Error& error) {
    return error.message();
  }
  return "";
}

TEST(Fields, EachValueIsCheckedByItsRuleAndToldByName) {
  EXPECT_EQ(refusal([](ListedOptions&) {}), "");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.flag = 2; }),
            "options.flag: expected 0 or 1, found 2");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.rank = 8; }),
            "options.rank: expected 0 to 7, found 8");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.dtype = FSDP2_DTYPE_I64; }),
            "options.dtype: expected a floating-point dtype, found Long");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.count = 0; }),
            "options.count: expected 1 to 9, found 0");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.rate = 1.5; }),
            "options.rate: expected 0 to 1, found 1.5");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.kind = 3; }), "options.kind: found 3");
  EXPECT_EQ(refusal([](ListedOptions& o) { o.reserved = 1; }),
            "options.reserved: expected 0, found 1");
}

TEST(Fields, TheTextHasALineForEachValueThatRanksMustHaveAlike) {
  EXPECT_EQ(text_of(kListedDefaults), "rate=0.5\nflag=0\ndtype=4\ncount=2\nkind=1\n");
}

TEST(Fields, NoOptionsAreTheDefaults) {
  EXPECT_EQ(read_options<ListedOptions>(nullptr, kListedDefaults).count, 2);
}

}  // namespace
}  // namespace fsdp2::capi
