// What Pillow makes of the same files: see make_images.py.
#include "core/images/decode.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <random>
#include <string>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::images {
namespace {

using ::testing::HasSubstr;

class Decode : public FileTest {
 protected:
  static std::string golden(const std::string& name) {
    return contents("tests/core/images/golden/" + name);
  }
  static ByteSpan span(const std::string& bytes) {
    return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  }
  // Whatever comes, it is decoded or refused, and both calls say the same of a header.
  static bool is_decoded(const std::string& bytes) {
    try {
      const at::Tensor pixels = decode(span(bytes));
      const ImageSize size = read_size(span(bytes));
      EXPECT_EQ(pixels.sizes(), (std::vector<int64_t>{size.height, size.width, 3}));
      return true;
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::kCorruptData || error.code() == Code::kUnsupported)
          << error.message();
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
      return false;
    }
  }
};

TEST_F(Decode, MakesThePixelsThatPillowMakes) {
  const ckpt::SafetensorsFile expected("tests/core/images/golden/pixels.safetensors");
  EXPECT_EQ(expected.tensors().size(), 22U);
  for (const ckpt::SafetensorsEntry& entry : expected.tensors()) {
    const std::string file = golden(entry.name);
    const ImageSize size = read_size(span(file));
    EXPECT_EQ(entry.shape, (std::vector<int64_t>{size.height, size.width, 3})) << entry.name;
    at::Tensor pixels = at::empty(entry.shape, at::kByte);
    expected.read(entry, 0, entry.bytes, pixels.mutable_data_ptr());
    EXPECT_TRUE(at::equal(decode(span(file)), pixels)) << entry.name;
  }
}

TEST_F(Decode, RefusesWhatIsNoImage) {
  for (const std::string& bytes :
       {std::string(), std::string("\xff\xd8"), std::string("GIF89a"), golden("sizes.json")}) {
    EXPECT_FALSE(is_image(span(bytes)));
    EXPECT_THAT(error_of([&] { decode(span(bytes)); }).message(), HasSubstr("neither a JPEG nor"));
  }
  const std::string cmyk = golden("cmyk.jpg");
  const Error error = error_of([&] { read_size(span(cmyk)); });
  EXPECT_EQ(error.code(), Code::kUnsupported);
  EXPECT_THAT(error.message(), HasSubstr("a JPEG of 4 components: expected grey or RGB"));
}

// Wherever a file is cut, it is refused and not filled up with grey.
TEST_F(Decode, RefusesFilesThatEndTooEarly) {
  for (const char* name : {"photo.jpg", "progressive.jpg", "rgb.png", "interlaced.png"}) {
    const std::string whole = golden(name);
    EXPECT_TRUE(is_decoded(whole)) << name;
    for (size_t length = 0; length + 40 < whole.size(); length += 1 + whole.size() / 97) {
      EXPECT_FALSE(is_decoded(whole.substr(0, length))) << name << " at " << length;
    }
  }
}

TEST_F(Decode, SurvivesFilesWithWrongBytes) {
  std::mt19937 random(7);
  for (const char* name : {"photo.jpg", "progressive.jpg", "restarts.jpg", "turned-6.jpg",
                           "palette.png", "interlaced.png", "sixteen-bits.png"}) {
    const std::string whole = golden(name);
    int decoded = 0;
    for (int round = 0; round < 400; ++round) {
      std::string bytes = whole;
      for (uint32_t i = 0; i <= round % 4U; ++i) {
        bytes[8 + random() % (bytes.size() - 8)] = static_cast<char>(random());
      }
      decoded += is_decoded(bytes) ? 1 : 0;
    }
    EXPECT_LT(decoded, 400) << name;
  }
}

// A header alone can ask for more than there is memory.
TEST_F(Decode, RefusesHugeSizes) {
  std::string jpeg = golden("photo.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xf0\xf0\xf0\xf0", 4);
  const Error error = error_of([&] { decode(span(jpeg)); });
  EXPECT_EQ(error.code(), Code::kUnsupported);
  EXPECT_THAT(error.message(), HasSubstr("has 61680 x 61680 pixels: expected at most 134217728"));
}

int64_t most_resident_kb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// The file says 7 MB in 7 kB, and says so 100 times.
TEST_F(Decode, KeepsNoTextsInMemory) {
  const std::string whole = golden("long-text.png");
  constexpr size_t kText = 33;  // where it begins: behind the mark and the header
  const size_t end = whole.rfind("IDAT") - 4;
  ASSERT_EQ(whole.substr(kText + 4, 4), "zTXt");
  std::string bytes = whole;
  for (int i = 1; i < 100; ++i) {
    bytes.insert(kText, whole.substr(kText, end - kText));
  }
  ASSERT_TRUE(is_decoded(whole));
  const int64_t before = most_resident_kb();
  EXPECT_TRUE(is_decoded(bytes));
  EXPECT_LT(most_resident_kb() - before, 100 * 1024);
}

// Each scan of a progressive file takes as long as the image; nothing bounds their number.
TEST_F(Decode, RefusesFilesOfManyScans) {
  const std::string whole = golden("progressive.jpg");
  const size_t scan = whole.rfind("\xff\xda");
  ASSERT_NE(scan, std::string::npos);
  std::string bytes = whole.substr(0, whole.size() - 2);
  for (int i = 0; i < 300; ++i) {
    bytes += whole.substr(scan, whole.size() - 2 - scan);
  }
  EXPECT_THAT(error_of([&] { decode(span(bytes + "\xff\xd9")); }).message(),
              HasSubstr("more than 100 scans"));
}

}  // namespace
}  // namespace fsdp2::images
