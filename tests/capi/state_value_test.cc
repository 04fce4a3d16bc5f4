// Values of a state as JSON.
#include "capi/nouns/checkpoint/state_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/errors.h"

namespace fsdp2::capi {
namespace {

TEST(StateValue, NumbersThatAreNotFiniteHaveNoFormInJson) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(value_to_json(ckpt::PythonList{{1.0, "a", true}}), R"([1.0,"a",true])");
  for (const double number : {std::nan(""), kInfinity, -kInfinity}) {
    EXPECT_EQ(error_of([&] { value_to_json(ckpt::PythonList{{1.0, number}}); }).code(),
              Code::kUnsupported);
  }
}

}  // namespace
}  // namespace fsdp2::capi
