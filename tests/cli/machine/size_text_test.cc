// Numbers as people read them.
#include "cli/machine/size_text.h"

#include <gtest/gtest.h>

namespace fsdp2::cli {
namespace {

TEST(NumberText, HasSoManyDigitsAndNoExponent) {
  EXPECT_EQ(number_text(0.01349, 3), "0.0135");
  EXPECT_EQ(number_text(2.0, 2), "2");
  EXPECT_EQ(number_text(128, 2), "128");                // cores
  EXPECT_EQ(number_text(1073741816, 9), "1073741816");  // files, as Docker has it
  EXPECT_EQ(number_text(999.6, 3), "1000");
}

TEST(SizeText, HasAUnit) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(999.6e6), "1 GB");
  EXPECT_EQ(size_text(1.5e9), "1.5 GB");
  EXPECT_EQ(size_text(2048e12), "2048 TB");
}

}  // namespace
}  // namespace fsdp2::cli
