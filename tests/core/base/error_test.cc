#include "core/base/error.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/core/base/file_fixture.h"

namespace fsdp2 {
namespace {

TEST(InContext, AnErrorIsToldWithItsContext) {
  const auto body = []() -> int { fail(Code::kNotFound, "no such module"); };
  Error error = error_of([&] { in_context("names 'a'", body); });
  EXPECT_EQ(error.code(), Code::kNotFound);
  EXPECT_EQ(error.message(), "names 'a': no such module");
  error = error_of([&] { in_context("the hook", body, Code::kCallback); });
  EXPECT_EQ(error.code(), Code::kCallback);
  EXPECT_EQ(error.message(), "the hook: no such module");
}

TEST(InContext, ResultsAndOtherExceptionsPassThrough) {
  EXPECT_EQ(in_context("unused", [] { return 7; }), 7);
  EXPECT_THROW(in_context("unused", [] { throw std::logic_error("as it is"); }), std::logic_error);
}

}  // namespace
}  // namespace fsdp2
