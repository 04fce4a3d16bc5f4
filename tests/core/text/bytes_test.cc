// What needs no plug-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/text/tokenizer.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteTokenizer, HasATokenForEachByte) {
  const Tokenizer bytes;
  EXPECT_EQ(bytes.vocab_size(), 256);
  EXPECT_EQ(bytes.end_token(), 0);
  const Encoding encoding = bytes.encode("a\xc3\xa9", Surround::kYes);
  EXPECT_THAT(encoding.ids, ElementsAre('a', 0xc3, 0xa9));
  EXPECT_THAT(encoding.begins, ElementsAre(0, 1, 2));
}

TEST(ByteTokenizer, DecodesWhatIsNoTextAsReplacements) {
  const Tokenizer bytes;
  EXPECT_EQ(bytes.decode({'a', 0xc3, 0xa9, 0}, /*skip_special=*/true), "a\xc3\xa9");
  EXPECT_EQ(bytes.decode({'a', 0xff, 'b', 0xc3}, true),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(error_of([&] { bytes.decode({256}, true); }).code(), Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] { bytes.decode({-1}, true); }).code(), Code::kInvalidArgument);
}

class TokenizersLibrary : public FileTest {
 protected:
  // What is said where the environment names this file.
  std::string error_with(const std::string& library) const {
    EXPECT_EQ(setenv("FSDP2_TOKENIZERS_LIBRARY", library.c_str(), 1), 0);
    const std::string json = write("tokenizer.json", "{}");
    const Error error = error_of([&] { const Tokenizer tokenizer(json); });
    EXPECT_EQ(unsetenv("FSDP2_TOKENIZERS_LIBRARY"), 0);
    EXPECT_EQ(error.code(), Code::kUnsupported);
    return error.message();
  }
};

TEST_F(TokenizersLibrary, ThatIsMissingIsNamedWithHowToBuildIt) {
  const std::string message = error_with(path("none.so"));
  EXPECT_THAT(message, HasSubstr("libfsdp2_tokenizers.so could not be opened (" + path("none.so")));
  EXPECT_THAT(message, HasSubstr("plugins/tokenizers/build.sh DIR builds it"));
}

TEST_F(TokenizersLibrary, ThatIsAnotherLibraryIsRefused) {
  EXPECT_THAT(error_with("libc.so.6"), HasSubstr("is not the tokenizers plug-in of libfsdp2"));
}

class TokenizerFiles : public FileTest {
 protected:
  void expect_refusal(const std::string& message) const {
    const Error error = error_of([&] { const Tokenizer tokenizer(path("tokenizer.json")); });
    EXPECT_EQ(error.code(), Code::kCorruptData);
    EXPECT_EQ(error.message(), path("") + message);
  }
  const std::string deep_ = std::string(200'000, '[') + std::string(200'000, ']');
};

TEST_F(TokenizerFiles, ThatAreNestedTooDeeplyAreNamed) {
  write("tokenizer.json", "{}");
  for (const std::string name :
       {"tokenizer_config.json", "special_tokens_map.json", "config.json"}) {
    write(name, "{\"chat_template\": " + deep_ + "}");
    expect_refusal(name + ": is nested more than 64 deep");
    std::filesystem::remove(path(name));
  }
  write("tokenizer_config.json", "{\"add_prefix_space\": true}");
  write(
      "tokenizer.json",
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "a": )" + deep_ + "}}");
  expect_refusal("tokenizer.json: its pre_tokenizer is nested more than 64 deep");
}

}  // namespace
}  // namespace fsdp2::text
