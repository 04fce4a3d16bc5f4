#include "core/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>

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

// What std::thread throws says nothing but "Resource temporarily unavailable".
TEST(CurrentException, ThreadsThatCannotBeHadAreToldAsSuch) {
  try {
    throw std::system_error(EAGAIN, std::generic_category());
  } catch (const std::exception&) {
    const Error error = current_exception_as_error();
    EXPECT_EQ(error.code(), Code::kOutOfMemory);
    EXPECT_EQ(error.native_code(), EAGAIN);
    EXPECT_EQ(error.message().find("the system gives no more threads or memory: Resource "), 0U);
  }
}

}  // namespace
}  // namespace fsdp2
