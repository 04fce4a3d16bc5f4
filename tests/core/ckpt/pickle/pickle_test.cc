#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "core/ckpt/pickle/graph.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/value/python_value.h"
#include "tests/core/base/file_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

constexpr char kProtocol2[] = "\x80\x02";

PythonValue read(const std::string& bytes) {
  return read_pickle(bytes, PickleNames::kTorchSave, "x.pth");
}

// A pickle of protocol 2 with these operations. Literals may hold zeros.
template <size_t N>
std::string pickle(const char (&operations)[N]) {
  return kProtocol2 + std::string(operations, N - 1);
}

PythonValue round_trip(const PythonValue& value) { return read(write_pickle(value)); }

TEST(Pickle, RoundTripOfEveryKind) {
  const PythonValue value = PythonDict{{
      {"none", {}},
      {"flags", PythonTuple{{true, false}}},
      {"floats", PythonList{{0.1, -0.0, std::numeric_limits<double>::infinity()}}},
      {"text", "tiny \xC3\xA9"},
      {"bytes", PythonBytes{"\x00\x7F\x80\xFF"s}},
      {"no bytes", PythonBytes{}},
      {"set", PythonSet{{1, "a"}}},
      {"empty", PythonTuple{{PythonList{}, PythonTuple{}, PythonDict{}, PythonSet{}}}},
      {7, PythonTuple{{1, 2, 3, 4}}},
      {PythonTuple{{1, "a"}}, "under a tuple"},
      {"dtype", PythonObject{"torch.bfloat16", PythonObject::Form::kName, {}, {}}},
      {"device", PythonObject{"torch.device", PythonObject::Form::kCall, {"cpu"}, {}}},
      {"tensor", describe_tensor(0, at::kBFloat16, {2, 3})},
      {"float8", describe_tensor(1, at::kFloat8_e4m3fn, {4})},
  }};
  EXPECT_EQ(round_trip(value), value);
}

TEST(Pickle, IntegersKeepTheirValueAtEveryWidth) {
  for (const int64_t value :
       {int64_t{0}, int64_t{-1}, int64_t{255}, int64_t{256}, int64_t{65535}, int64_t{65536},
        int64_t{INT32_MIN}, int64_t{INT32_MAX}, int64_t{INT32_MAX} + 1, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(round_trip(value), PythonValue(value)) << value;
  }
  EXPECT_EQ(read(pickle("\x8a\x00.")), PythonValue(0));
  EXPECT_EQ(read(pickle("\x8a\x01\xFF.")), PythonValue(-1));
  EXPECT_EQ(read(pickle("\x8a\x02\x00\x80.")), PythonValue(-32768));
}

TEST(Pickle, BytesAreWhatPythonWrites) {
  // pickletools.dis agrees; memo numbers are given to names only.
  EXPECT_EQ(write_pickle(PythonDict{{{"a", 1}}}), pickle("}(X\x01\x00\x00\x00\x61K\x01u."));
  EXPECT_EQ(write_pickle(PythonSet{{2}}), pickle("c__builtin__\nset\nq\x00](K\x02\x65\x85R."));
}

TEST(Pickle, ReadsProtocolsTwoToFive) {
  // pickle.dumps({"a": (1, [2.5])}, protocol)
  const PythonValue expected = PythonDict{{{"a", PythonTuple{{1, PythonList{{2.5}}}}}}};
  EXPECT_EQ(read(pickle("}q\x00X\x01\x00\x00\x00\x61q\x01K\x01]q\x02G@\x04\x00\x00\x00\x00\x00\x00"
                        "a\x86q\x03s.")),
            expected);
  const std::string body =
      "\x95\x18\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01\x61\x94K\x01]\x94G@\x04\x00\x00\x00\x00"
      "\x00\x00\x61\x86\x94s."s;
  EXPECT_EQ(read("\x80\x04" + body), expected);
  EXPECT_EQ(read("\x80\x05" + body), expected);
}

TEST(Pickle, LaterKeyOfTheSameNameWins) {
  EXPECT_EQ(read(pickle("}(K\x01K\x02K\x03K\x04K\x01K\x05u.")),
            (PythonValue(PythonDict{{{1, 5}, {3, 4}}})));
}

TEST(Pickle, ValuesUsedTwiceBecomeTwo) {
  EXPECT_EQ(read(pickle("](K\x01K\x02\x86q\x00h\x00\x65.")),
            (PythonValue(PythonList{{PythonTuple{{1, 2}}, PythonTuple{{1, 2}}}})));
}

TEST(Pickle, NamesThatDataDoesNotNeedAreRefusedAndNotRun) {
  EXPECT_ERROR(read(pickle("cos\nsystem\nX\x04\x00\x00\x00true\x85R.")), Code::kUnsupported,
               "x.pth: its pickle, byte 2: it uses os.system, which is not among");
  EXPECT_ERROR(read(pickle("cbuiltins\neval\nX\x01\x00\x00\x00\x31\x85R.")), Code::kUnsupported,
               "builtins.eval");
  EXPECT_ERROR(read(pickle("c__builtin__\ngetattr\n.")), Code::kUnsupported, "builtins.getattr");
  EXPECT_ERROR(read("\x80\x04\x8c\x05posix\x8c\x06system\x93."), Code::kUnsupported,
               "posix.system");
  EXPECT_ERROR(read(pickle("cnumpy.core.multiarray\nscalar\n.")), Code::kUnsupported, "numpy");
  EXPECT_ERROR(read(pickle("cos\nsys\ntem\n.")), Code::kUnsupported, "os.sys");
  EXPECT_ERROR(read(pickle("ctorch._utils\n_rebuild_qtensor\n.")), Code::kUnsupported,
               "is not handled");
}

PythonValue read_any(const std::string& bytes) {
  return read_pickle(bytes, PickleNames::kAnyTorchSave, "x.pth");
}

TEST(Pickle, WhatNeedsOtherNamesStaysUnreadAndHindersNothing) {
  // {1: os.system("true"), 2: an object with a state and items, 3: [one with keywords], 4: 5}
  const PythonValue value =
      read_any(pickle("}(K\x01"
                      "cos\nsystem\nX\x04\x00\x00\x00true\x85R"
                      "K\x02"
                      "ca\nB\n)\x81}b(K\x07"
                      "e"
                      "K\x03](ca\nC\n)}\x92"
                      "e"
                      "K\x04K\x05u."));
  const auto& items = value.as<PythonDict>()->items;
  ASSERT_EQ(items.size(), 4U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_ERROR(check_is_read(items[i].value, "x.pth"), Code::kUnsupported, "nothing was run");
    EXPECT_ERROR(write_pickle(items[i].value), Code::kUnsupported, "nothing was run");
  }
  EXPECT_ERROR(check_is_read(items[0].value, "x.pth"), Code::kUnsupported,
               "x.pth: its pickle, byte 6: it uses os.system, which is not among the names");
  EXPECT_EQ(items[3].value, 5);
  check_is_read(items[3].value, "x.pth");
}

TEST(Pickle, AWideIntegerStaysUnread) {
  const PythonValue value =
      read_any(pickle("\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01K\x05\x86."));
  const auto& items = value.as<PythonTuple>()->items;
  EXPECT_ERROR(check_is_read(items[0], "x.pth"), Code::kUnsupported, "more than 64 bits");
  EXPECT_EQ(items[1], 5);
}

// scalar(dtype(code, False, True), bytes)
std::string numpy_number(const std::string& code, char order, const std::string& bytes) {
  return kProtocol2 + "cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\0\0\0"s + code +
         "\x89\x88\x87R(K\x03X\x01\0\0\0"s + order + "NNNJ\xff\xff\xff\xffK\0tbC"s +
         static_cast<char>(bytes.size()) + bytes + "\x86R.";
}

TEST(Pickle, NumbersOfNumpyAreNumbers) {
  EXPECT_EQ(read_any(numpy_number("f8", '<', "\0\0\0\0\0\0\xd0?"s)), 0.25);
  EXPECT_EQ(read_any(numpy_number("f4", '<', "\0\0\x80>"s)), 0.25);
  EXPECT_EQ(read_any(numpy_number("i8", '<', "\x05\0\0\0\0\0\0\0"s)), 5);
  EXPECT_EQ(read_any(numpy_number("b1", '|', "\x01")), true);
  const PythonValue swapped = read_any(numpy_number("i8", '>', "\0\0\0\0\0\0\0\x05"s));
  EXPECT_ERROR(check_is_read(swapped, "x.pth"), Code::kUnsupported, "another order of bytes");
  const PythonValue unread = read_any(numpy_number("U1", '<', "abcd"));
  EXPECT_ERROR(check_is_read(unread, "x.pth"), Code::kUnsupported, "a number of numpy's dtype U1");
  // Shorter than its dtype.
  const PythonValue cut = read_any(numpy_number("f8", '<', "abcd"));
  EXPECT_ERROR(check_is_read(cut, "x.pth"), Code::kUnsupported, "a number of numpy's dtype f8");
}

TEST(Pickle, EachFormatHasItsOwnNames) {
  const std::string metadata =
      pickle("ctorch.distributed.checkpoint.metadata\nBytesStorageMetadata\n)\x81.");
  EXPECT_ERROR(read(metadata), Code::kUnsupported, "BytesStorageMetadata");
  EXPECT_NO_THROW(read_pickle(metadata, PickleNames::kDcpMetadata, ".metadata"));
  const std::string storage = pickle("ctorch\nFloatStorage\n.");
  EXPECT_NO_THROW(read(storage));
  EXPECT_ERROR(read_pickle(storage, PickleNames::kDcpMetadata, ".metadata"), Code::kUnsupported,
               ".metadata: its pickle, byte 2: it uses torch.FloatStorage");
}

TEST(Pickle, AScriptsObjectsAndTypedListsAreData) {
  const auto read_script = [](const std::string& bytes) {
    return read_pickle(bytes, PickleNames::kTorchScript, "data.pkl");
  };
  const std::string object =
      pickle("c__torch__.a.___torch_mangle_0\nNet\n)\x81}X\x01\0\0\0nK\x05sb.");
  const PythonValue net = read_script(object);
  ASSERT_NE(net.as<PythonObject>(), nullptr);
  EXPECT_EQ(net.as<PythonObject>()->name, "__torch__.a.___torch_mangle_0.Net");
  EXPECT_EQ(net.as<PythonObject>()->state.front(), (PythonDict{{{"n", 5}}}));
  EXPECT_ERROR(read(object), Code::kUnsupported, "__torch__.a.___torch_mangle_0.Net");
  const PythonValue list = read_script(pickle("ctorch.jit._pickle\nbuild_intlist\n(]K\x07\x61tR."));
  EXPECT_EQ(list, (PythonList{{7}}));
  const PythonValue texts =
      read_script(pickle("ctorch.jit._pickle\nrestore_type_tag\n(]X\x09\0\0\0List[str]tR."));
  EXPECT_EQ(texts, PythonList());
  EXPECT_ERROR(read_script(pickle("ctorch.jit._pickle\nbuild_intlist\n(K\x07tR.")),
               Code::kCorruptData, "wrong arguments for torch.jit._pickle.build_intlist");
  EXPECT_ERROR(read_script(pickle("c__torch__\nNet\n)R.")), Code::kCorruptData,
               "__torch__.Net is called");
  EXPECT_ERROR(read_script(pickle("cos\nsystem\n.")), Code::kUnsupported, "os.system");
}

TEST(Pickle, AllowedNamesAreCalledWithTheirOwnArgumentsOnly) {
  EXPECT_ERROR(read(pickle("ctorch\nSize\nK\x01\x85R.")), Code::kCorruptData,
               "wrong arguments for torch.Size");
  EXPECT_ERROR(read(pickle("ctorch\nfloat32\n)R.")), Code::kCorruptData, "torch.float32 is called");
  EXPECT_ERROR(read(pickle("ctorch\ndevice\n)R.")), Code::kCorruptData, "arguments");
  EXPECT_ERROR(read(pickle("K\x01)R.")), Code::kCorruptData, "a call of an int");
  EXPECT_ERROR(read(pickle("ctorch\nSize\n]R.")), Code::kCorruptData, "with a list");
  EXPECT_ERROR(read(pickle("ctorch\ndevice\n)\x81.")), Code::kCorruptData, "an object");
  EXPECT_ERROR(read(pickle("K\x01}b.")), Code::kCorruptData, "a state for an int");
}

TEST(Pickle, OperationsThatDataDoesNotNeedAreRefused) {
  // INST, OBJ, PERSID, EXT1, BYTEARRAY8, POP, text-mode INT
  for (const char* operation : {"i", "o", "P", "\x82", "\x96", "0", "I"}) {
    EXPECT_ERROR(read(std::string(kProtocol2) + operation + ")."), Code::kCorruptData,
                 "byte 2: an operation 0x");
  }
  // NEWOBJ_EX, without the class
  EXPECT_ERROR(read(std::string(kProtocol2) + "\x92)."), Code::kCorruptData,
               "byte 2: an operation on 1 values where there are 0");
}

TEST(Pickle, LengthsAreComparedWithWhatIsLeft) {
  EXPECT_ERROR(read(pickle("X\xFF\xFF\xFF\xFF.")), Code::kCorruptData,
               "expected 4294967295 more bytes, 1 are left");
  EXPECT_ERROR(read("\x80\x04\x8d\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF."), Code::kCorruptData,
               "more bytes");
  EXPECT_ERROR(read("\x80\x04\x95\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F."), Code::kCorruptData,
               "a frame of");
  EXPECT_ERROR(read(pickle("j\xFF\xFF\xFF\xFF.")), Code::kCorruptData, "was never set");
  EXPECT_ERROR(read(pickle("Nr\xFF\xFF\xFF\xFF.")), Code::kCorruptData, "a memo number");
  EXPECT_ERROR(read(pickle("ctorch")), Code::kCorruptData, "a name without an end");
  EXPECT_ERROR(read(pickle("\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01.")), Code::kUnsupported,
               "more than 64 bits");
}

TEST(Pickle, StackMustHoldWhatAnOperationTakes) {
  for (const char* operation : {"a", "s", "\x85", "R", "b", "Q", "e", "u", "t", "q"}) {
    EXPECT_THROW(read(std::string(kProtocol2) + operation + "\x01."), Error);
  }
  EXPECT_ERROR(read(pickle("N(\x85.")), Code::kCorruptData, "on 1 values where there are 0");
  EXPECT_ERROR(read(pickle("NN.")), Code::kCorruptData, "expected one value at its end, found 2");
  EXPECT_ERROR(read(pickle("N(.")), Code::kCorruptData, "expected one value");
  EXPECT_ERROR(read(pickle("N.N")), Code::kCorruptData, "1 bytes follow its end");
  EXPECT_ERROR(read(pickle("}(Nu.")), Code::kCorruptData, "a key without a value");
  EXPECT_ERROR(read(pickle("]]]]s.")), Code::kCorruptData, "items are put into a list");
  EXPECT_ERROR(read("\x80\x02"), Code::kCorruptData, "incomplete");
  EXPECT_ERROR(read(""), Code::kCorruptData, "expected a pickle");
  EXPECT_ERROR(read("\x80\x01N."), Code::kCorruptData, "found 1");
  EXPECT_ERROR(read(pickle("\x80\x02N.")), Code::kCorruptData, "expected a pickle");
}

TEST(Pickle, DeepNestingIsRefused) {
  std::string lists = kProtocol2;
  lists += std::string(100'000, ']') + std::string(99'999, 'a') + ".";
  EXPECT_ERROR(read(lists), Code::kCorruptData, "nested more than 200 deep");
  PythonValue value;
  for (size_t i = 0; i < kMaxPickleDepth + 1; ++i) {
    value = PythonTuple{{value}};
  }
  EXPECT_ERROR(write_pickle(value), Code::kInvalidArgument, "nested");
}

TEST(Pickle, ValueInsideItselfIsRefused) {
  EXPECT_ERROR(read(pickle("]q\x00h\x00\x61.")), Code::kCorruptData, "inside themselves");
  EXPECT_ERROR(read(pickle("}q\x00K\x01h\x00s.")), Code::kCorruptData, "inside themselves");
}

TEST(Pickle, FewBytesCannotMeanManyValues) {
  // Ten lists, each of ten times the one before: ten thousand million numbers.
  std::string bomb = kProtocol2;
  bomb += "]q\x00"s + "(";
  for (int i = 0; i < 10; ++i) {
    bomb += "K\x01"s;
  }
  bomb += "e";
  for (char level = 0; level < 9; ++level) {
    bomb += std::string("]q") + static_cast<char>(level + 1) + "(";
    for (int i = 0; i < 10; ++i) {
      bomb += std::string("h") + level;
    }
    bomb += "e";
  }
  bomb += "(" + std::string("t") + "0.";
  EXPECT_THROW(read(bomb), Error);
  bomb.resize(bomb.size() - 4);
  // All ten lists are on the stack: one tuple of them.
  bomb = kProtocol2 + ("(" + bomb.substr(2)) + "t.";
  EXPECT_ERROR(read(bomb), Code::kCorruptData, "uses the same values over and over");
}

TEST(Pickle, ValuesTakeMemoryInProportionToTheFile) {
  const std::string lists(4'000'000, ']');
  EXPECT_ERROR(read(kProtocol2 + lists + "."), Code::kCorruptData,
               "holds more values than a file of 4000003 bytes can be meant to");
  EXPECT_ERROR(read(kProtocol2 + std::string(1'000, '(') + "."), Code::kCorruptData,
               "byte 203: values nested more than 200 deep");
  EXPECT_ERROR(read(kProtocol2 + ("N" + std::string(1'000, '\x85')) + "."), Code::kCorruptData,
               "byte 203: values nested more than 200 deep");
}

TEST(Pickle, ManySmallValuesAreWithinBounds) {
  std::string pairs = std::string(kProtocol2) + "](";
  for (int i = 0; i < 1'000'000; ++i) {
    pairs += "K\x01K\x02\x86";
  }
  pairs += "e.";
  const PickleGraph graph(pairs, PickleNames::kTorchSave, "x.pth");
  EXPECT_EQ(graph.children(graph.root()).size(), 1'000'000u);
}

TEST(Pickle, CopiesOfArgumentsAreBounded) {
  // One list of 1000 numbers as the argument of a set, a thousand times.
  std::string bomb = kProtocol2;
  bomb += "(c__builtin__\nset\nq\x00]("s;
  bomb += std::string(1000, 'N') + "e\x85q\x01"s;
  for (int i = 0; i < 1000; ++i) {
    bomb += "h\x00h\x01R"s;
  }
  EXPECT_ERROR(read(bomb + "t."), Code::kCorruptData, "used too often");
}

TEST(Pickle, KeysMustBeHashable) {
  EXPECT_ERROR(read(pickle("}]K\x01s.")), Code::kCorruptData, "a list as a key");
}

TEST(Pickle, TextMustBeUtf8) {
  for (const char* text : {"\xFF", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80"}) {
    const std::string body = std::string("X") + static_cast<char>(std::string(text).size()) +
                             std::string(3, '\0') + text + ".";
    EXPECT_ERROR(read(kProtocol2 + body), Code::kCorruptData, "not UTF-8");
    EXPECT_ERROR(write_pickle(text), Code::kInvalidArgument, "not UTF-8");
  }
}

// A tensor of one FloatStorage "0" of `numel` elements (one byte) with the given operations for
// offset, size and stride.
std::string tensor_pickle(char numel, const std::string& view) {
  return std::string(kProtocol2) + "ctorch._utils\n_rebuild_tensor_v2\n((X" + "\x07\0\0\0storage"s +
         "ctorch\nFloatStorage\nX" + "\x01\0\0\0"s + "0X" + "\x03\0\0\0"s + "cpuK" + numel + "tQ" +
         view +
         "\x89"
         "ccollections\nOrderedDict\n)RtR.";
}

TEST(Pickle, TensorsMustLieInTheirStorage) {
  EXPECT_EQ(read(tensor_pickle(6, "K\x00K\x02K\x03\x86K\x03K\x01\x86"s)),
            PythonValue(describe_tensor(0, at::kFloat, {2, 3})));
  // One row too many, an offset, a negative size, a negative stride, an overflow.
  for (const std::string& view : {
           "K\x00K\x03K\x03\x86K\x03K\x01\x86"s,
           "K\x01K\x02K\x03\x86K\x03K\x01\x86"s,
           "K\x00J\xFF\xFF\xFF\xFFK\x03\x86K\x03K\x01\x86"s,
           "K\x00K\x02K\x03\x86J\xFF\xFF\xFF\xFFK\x01\x86"s,
           "K\x00\x8a\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FK\x03\x86K\x03K\x01\x86"s,
           "K\x00K\x02K\x03\x86\x8a\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7FK\x01\x86"s,
           "J\xFF\xFF\xFF\xFFK\x02K\x03\x86K\x03K\x01\x86"s,
           "K\x00K\x02K\x03\x86K\x03\x85"s,
       }) {
    EXPECT_ERROR(read(tensor_pickle(6, view)), Code::kCorruptData, "a tensor");
  }
}

}  // namespace
}  // namespace fsdp2::ckpt
