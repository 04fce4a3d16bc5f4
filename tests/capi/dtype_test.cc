#include "capi/dtype.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {
namespace {

TEST(Dtype, KeepsItsNumber) {
  for (int32_t number = FSDP2_DTYPE_F32; number <= FSDP2_DTYPE_BOOL; ++number) {
    EXPECT_EQ(dtype_number(read_dtype(number, "dtype")), number);
  }
}

TEST(Dtype, WithoutANumberIsOther) {
  EXPECT_EQ(dtype_number(at::kComplexFloat), FSDP2_DTYPE_OTHER);
  EXPECT_EQ(dtype_number(at::ScalarType::Float8_e4m3fn), FSDP2_DTYPE_OTHER);
}

TEST(Dtype, OtherIsNoInput) {
  EXPECT_THROW(read_dtype(FSDP2_DTYPE_OTHER, "dtype"), Error);
  EXPECT_THROW(read_float_dtype_or_keep(FSDP2_DTYPE_OTHER, "dtype"), Error);
}

}  // namespace
}  // namespace fsdp2::capi
