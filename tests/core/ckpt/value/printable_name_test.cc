#include "core/ckpt/value/printable_name.h"

#include <gtest/gtest.h>

#include <string>

namespace fsdp2::ckpt {
namespace {

TEST(PrintableName, OrdinaryNamesAreUnchanged) {
  EXPECT_EQ(printable_name("model.layers.0.weight"), "model.layers.0.weight");
  EXPECT_EQ(printable_name("größe"), "größe");
  EXPECT_EQ(printable_name(""), "");
}

TEST(PrintableName, ControlCharactersAreReplaced) {
  EXPECT_EQ(printable_name(std::string("a\nb\x1b[0m\0\x7f", 9)), "a?b?[0m??");
}

TEST(PrintableName, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(printable_name("a\xaf.b"), "a?.b");
  EXPECT_EQ(printable_name("\xc3"), "?");
  EXPECT_EQ(printable_name(std::string(201, '\xff')), std::string(200, '?') + "...");
}

TEST(PrintableName, LongNamesAreCut) {
  EXPECT_EQ(printable_name(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(printable_name(std::string(201, 'x')), std::string(200, 'x') + "...");
}

TEST(PrintableName, TheCutNeverSplitsACharacter) {
  EXPECT_EQ(printable_name(std::string(199, 'x') + "ß" + "tail"), std::string(199, 'x') + "...");
}

}  // namespace
}  // namespace fsdp2::ckpt
