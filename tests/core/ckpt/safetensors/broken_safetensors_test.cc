// One test per way in which a safetensors file can be wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/ckpt/safetensors/safetensors_file.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"

namespace fsdp2::ckpt {
namespace {

class BrokenSafetensors : public FileTest {
 protected:
  // Expects that a file of these bytes is refused, naming the file.
  void refuses(const std::string& bytes, const std::string& message,
               Code code = Code::kCorruptData) const {
    const std::string file = write("x.safetensors", bytes);
    EXPECT_ERROR(SafetensorsFile{file}, code, message);
    EXPECT_ERROR(SafetensorsFile{file}, code, file);
  }
  void refuses_header(const std::string& header, const std::string& message,
                      Code code = Code::kCorruptData) const {
    refuses(safetensors_text(header, std::string(16, 'd')), message, code);
  }
};

constexpr char kGood[] =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"U8","shape":[2,4],"data_offsets":[8,16]}})";

TEST_F(BrokenSafetensors, TheSameFileUnbrokenIsRead) {
  const SafetensorsFile file(write("x", safetensors_text(kGood, std::string(16, 'd'))));
  EXPECT_EQ(file.tensors().size(), 2U);
}

TEST_F(BrokenSafetensors, TruncatedAtAnyLength) {
  const std::string whole = safetensors_text(kGood, std::string(16, 'd'));
  for (size_t length = 0; length < whole.size(); ++length) {
    SCOPED_TRACE(length);
    refuses(whole.substr(0, length), "incomplete");
  }
}

TEST_F(BrokenSafetensors, BytesBehindTheLastTensor) {
  refuses(safetensors_text(kGood, std::string(17, 'd')),
          "the tensors end at byte 16 of the data, of which the file has 17");
}

TEST_F(BrokenSafetensors, HeaderLengthAboveTheLimit) {
  refuses(little_endian(100'000'001) + "{}", "at most 100000000 are allowed");
  refuses(little_endian(UINT64_MAX) + "{}", "its header has 18446744073709551615 bytes");
}

TEST_F(BrokenSafetensors, HeaderLengthBeyondTheFile) {
  refuses(little_endian(3) + "{}", "its header has 3 bytes, but the file has 10 in all");
}

TEST_F(BrokenSafetensors, HeaderIsEmpty) { refuses(safetensors_text("", ""), "is not JSON"); }

TEST_F(BrokenSafetensors, HeaderIsNotJson) {
  refuses(safetensors_text("PK\x03\x04 a zip file", ""), "is not JSON");
  refuses_header(R"({"a":{"dtype":"F32",})", "not valid JSON");
}

TEST_F(BrokenSafetensors, HeaderIsNotUtf8) {
  refuses_header("{\"\xff\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}",
                 "not valid JSON at its byte 3");
}

TEST_F(BrokenSafetensors, HeaderGoesOnBehindANullByte) {
  refuses(safetensors_text(std::string("{}\0{}", 5), ""), "is not JSON");
}

TEST_F(BrokenSafetensors, HeaderIsTwoObjects) { refuses_header("{}{}", "not valid JSON"); }

TEST_F(BrokenSafetensors, HeaderStartsWithASpace) {
  refuses(safetensors_text(" {}", ""), "is not JSON");
}

TEST_F(BrokenSafetensors, HeaderIsAnArray) { refuses(safetensors_text("[]", ""), "is not JSON"); }

TEST_F(BrokenSafetensors, HostileNesting) {
  refuses_header("{\"a\":" + std::string(1'000'000, '['),
                 "tensor a: expected an object, found an array");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) {
    objects += "{\"a\":";
  }
  refuses_header(objects, "tensor a: unknown key a");
  refuses_header(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})",
                 "tensor a: shape: expected an array of sizes, found an array");
}

TEST_F(BrokenSafetensors, SameTensorTwice) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                 R"("a":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
                 "names a twice");
}

TEST_F(BrokenSafetensors, SameFieldTwice) {
  refuses_header(R"({"a":{"dtype":"U8","dtype":"U8","shape":[16],"data_offsets":[0,16]}})",
                 "tensor a: dtype is there twice");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"shape":[16],"data_offsets":[0,16]}})",
                 "tensor a: shape is there twice");
}

TEST_F(BrokenSafetensors, SameMetadataTwice) {
  refuses_header(R"({"__metadata__":{"k":"1","k":"2"}})", "metadata has k twice");
  refuses_header(R"({"__metadata__":{},"__metadata__":{}})", "names __metadata__ twice");
}

TEST_F(BrokenSafetensors, MetadataIsNotStrings) {
  refuses_header(R"({"__metadata__":{"k":1}})", "map strings to strings, found a number");
  refuses_header(R"({"__metadata__":{"k":{}}})", "map strings to strings, found an object");
  refuses_header(R"({"__metadata__":"pt"})", "map strings to strings, found a string");
}

TEST_F(BrokenSafetensors, FieldIsMissing) {
  refuses_header(R"({"a":{"shape":[16],"data_offsets":[0,16]}})", "tensor a: dtype is missing");
  refuses_header(R"({"a":{"dtype":"U8","data_offsets":[0,16]}})", "tensor a: shape is missing");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16]}})", "tensor a: data_offsets is missing");
}

TEST_F(BrokenSafetensors, FieldIsUnknown) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16],"strides":[1]}})",
                 "tensor a: unknown key strides");
}

TEST_F(BrokenSafetensors, FieldHasAnotherType) {
  refuses_header(R"({"a":null})", "tensor a: expected an object, found null");
  refuses_header(R"({"a":{"dtype":5}})", "tensor a: dtype: expected a string, found a number");
  refuses_header(R"({"a":{"shape":"16"}})",
                 "tensor a: shape: expected an array of sizes, found a string");
  refuses_header(R"({"a":{"shape":[true]}})", "found a boolean");
  refuses_header(R"({"a":{"data_offsets":{}}})",
                 "data_offsets: expected an array of two positions");
}

TEST_F(BrokenSafetensors, UnknownDtype) {
  refuses_header(R"({"a":{"dtype":"F4","shape":[32],"data_offsets":[0,16]}})",
                 "tensor a: dtype F4 is not one of those supported", Code::kUnsupported);
}

TEST_F(BrokenSafetensors, NegativeSize) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[-16],"data_offsets":[0,16]}})",
                 "tensor a: shape: expected an array of sizes, found a negative number");
}

TEST_F(BrokenSafetensors, SizeThatIsNoInteger) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[1.6e1],"data_offsets":[0,16]}})",
                 "found a number that is no 64-bit integer");
  refuses_header(R"({"a":{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,16]}})",
                 "found a number that is no 64-bit integer");
  refuses_header(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,16]}})",
                 "tensor a: size 9223372036854775808 is too large");
}

TEST_F(BrokenSafetensors, ShapeWhoseProductOverflows) {
  // 2^32 x 2^32 and 2^62 x 4 bytes come to 0 in 64 bits.
  refuses_header(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                 "tensor a: its shape is too large");
  refuses_header(R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})",
                 "tensor a: its shape is too large");
  refuses_header(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})",
                 "tensor a: its shape is too large");
}

TEST_F(BrokenSafetensors, TooManyDims) {
  std::string shape = "1";
  for (int i = 0; i < 64; ++i) {
    shape += ",1";
  }
  refuses_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]}}",
                 "tensor a: more than 64 dims");
}

TEST_F(BrokenSafetensors, RangeOfAnotherSizeThanTheShape) {
  refuses_header(R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})",
                 "tensor a: its dtype and shape make 20 bytes, its data_offsets 16");
}

TEST_F(BrokenSafetensors, RangeThatIsNotTwoOrderedNumbers) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[16,0]}})",
                 "data_offsets are not a begin and an end");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0]}})",
                 "data_offsets are not a begin and an end");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16,32]}})",
                 "more than two data offsets");
}

TEST_F(BrokenSafetensors, RangeBeyondTheFile) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[17],"data_offsets":[0,17]}})",
                 "tensor a ends at byte 17 of the data, of which the file has 16");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],)"
                 R"("data_offsets":[9223372036854775791,9223372036854775807]}})",
                 "tensor a ends at byte 9223372036854775807");
}

TEST_F(BrokenSafetensors, OverlappingTensors) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[10],"data_offsets":[0,10]},)"
                 R"("b":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
                 "tensor b begins at byte 8 of the data, inside the tensor before it");
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                 R"("b":{"dtype":"U8","shape":[16],"data_offsets":[0,16]}})",
                 "inside the tensor before it");
}

TEST_F(BrokenSafetensors, EmptyTensorInsideAnother) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[16],"data_offsets":[0,16]},)"
                 R"("b":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})",
                 "tensor b begins at byte 8 of the data, inside the tensor before it");
}

TEST_F(BrokenSafetensors, HoleBetweenTensors) {
  refuses_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("b":{"dtype":"U8","shape":[8],"data_offsets":[8,16]}})",
                 "bytes 4 to 8 of the data, before tensor b, belong to no tensor");
}

TEST_F(BrokenSafetensors, HostileNameKeepsTheMessageOneShortLine) {
  const std::string name = "a\\n\\u001b[31m" + std::string(5000, 'x');
  refuses_header("{\"" + name + "\":null}", "tensor a??[31mxxx");
  const Error error = error_of(
      [&] { SafetensorsFile file(write("x", safetensors_text("{\"" + name + "\":null}", ""))); });
  EXPECT_LT(error.message().size(), 500U);
}

TEST_F(BrokenSafetensors, DirectoryInPlaceOfTheFile) {
  write("d/x", "");
  EXPECT_ERROR(SafetensorsFile{path("d")}, Code::kIo, "expected a regular file");
}

}  // namespace
}  // namespace fsdp2::ckpt
