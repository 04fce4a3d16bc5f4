// TorchScript files that are damaged, hostile, or of a kind that is not run: each is one line that
// names the file and what is wrong.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <utility>
#include <vector>

#include "core/exported/exported_program.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

class BrokenScript : public FileTest {
 protected:
  ExportedModel load() const { return load_exported(write("m.pt", file.bytes())); }

  void expect(Code code, const std::string& message) const {
    EXPECT_ERROR(load(), code, message);
    EXPECT_ERROR(load(), code, "m.pt: ");
  }
  // Expects it of a file whose forward is this line.
  void expect_forward(const std::string& line, Code code, const std::string& message) {
    SCOPED_TRACE(line);
    file.forward = "    " + line + "\n    return torch.sum(torch.mul(x, self.w))\n";
    expect(code, message);
  }
  void expect_zip(const std::vector<ckpt::ZipEntry>& entries, Code code,
                  const std::string& message) const {
    EXPECT_ERROR(load_exported(write("m.pt", ckpt::zip_text(entries))), code, message);
  }

  ScriptFile file;
};

TEST_F(BrokenScript, GoodOneIsTaken) {
  const ExportedModel model = load();
  EXPECT_EQ(model.module->kind(), "M");
  EXPECT_TRUE(model.has_values);
  EXPECT_FALSE(model.draws_random_numbers);
  nn::materialize(*model.module, *model.values);
  const at::Tensor x = at::zeros({2, 3}, at::device(at::kCPU));
  EXPECT_EQ((*model.module)(x).item<float>(), 0.0F);
}

TEST_F(BrokenScript, NoneIsWhatItIsNot) {
  EXPECT_ERROR(load_exported(write("m.pt", "x")), Code::kCorruptData, "no end of a zip archive");
  EXPECT_ERROR(load_exported(path("none.pt")), Code::kNotFound, "none.pt");
  const ckpt::ZipEntry state = {"m/data.pkl", ckpt::write_pickle(ckpt::PythonTuple())};
  expect_zip({state, {"m/version", "3\n"}}, Code::kUnsupported,
             "m.pt: holds values alone, as torch.save writes them, and no program");
  expect_zip({{"m/.data/extern_modules", "sys"}, {"m/.data/version", "3"}}, Code::kUnsupported,
             "m.pt: is a torch.package");
}

TEST_F(BrokenScript, RecordsAreThereAndOfTheirSize) {
  const std::vector<ckpt::ZipEntry> good = file.entries();
  for (const size_t missing : {0, 3, 4}) {  // code, values, version
    std::vector<ckpt::ZipEntry> entries = good;
    entries.erase(entries.begin() + static_cast<ptrdiff_t>(missing));
    EXPECT_THROW(load_exported(write("m.pt", ckpt::zip_text(entries))), Error);
  }
  file.storage.resize(20);
  expect(Code::kCorruptData, "its record data/0 has 20 bytes, expected 6 elements of 4 bytes");
  file = ScriptFile();
  file.rows = 3;
  expect(Code::kCorruptData, "data.pkl");
  file = ScriptFile();
  file.version = "99";
  expect(Code::kUnsupported, "has version 99 of TorchScript's operators, the newest known is 10");
  file.version = "new";
  expect(Code::kCorruptData, "version says new");
}

TEST_F(BrokenScript, ValuesFitTheClass) {
  file.class_name = "__torch__.N";
  expect(Code::kUnsupported, "__torch__.N");
  file = ScriptFile();
  file.attribute = "v";
  expect(Code::kCorruptData, "w has no value");
  file = ScriptFile();
  file.more_attributes = "  n : int\n";
  expect(Code::kCorruptData, "n has no value");
  file = ScriptFile();
  file.storage_class = "torch.IntStorage";
  expect(Code::kUnsupported, "the parameter w is of type Int, expected floats");
  file = ScriptFile();
  file.constants = ckpt::write_pickle(ckpt::PythonTuple{{1}});
  expect(Code::kUnsupported, "a constant is an int, expected tensors");
}

TEST_F(BrokenScript, CodeThatDoesNotCompileIsToldInOneLine) {
  expect_forward("x = torch.no_such(x)", Code::kUnsupported,
                 "cannot compile __torch__.M: Unknown builtin op: aten::no_such");
  expect_forward("return (((", Code::kUnsupported, "cannot compile __torch__.M: ");
  file = ScriptFile();
  file.forward = "    return torch.sum(torch.mul(x, CONSTANTS.c7))\n";
  expect(Code::kUnsupported, "cannot compile __torch__.M");
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// LibTorch's lexer and parser call themselves once for each.
TEST_F(BrokenScript, CodeIsNotNestedDeeply) {
  const std::string open = repeated("(", 20000);
  const std::string blocks = [] {
    std::string lines = "x = x\n";
    for (size_t i = 4; i < 5000; ++i) {
      lines += std::string(i, ' ') + "if True:\n";
    }
    return lines;
  }();
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"x = " + open, "code/__torch__.py has more than 200 brackets inside one another"},
      {"# '\n    x = " + open, "brackets inside one another"},
      {"# type: ' \\\n ' \"\n    x = " + open, "a text that goes on in the next line"},
      {"y = ' \\\n ' + \"\n    x = " + open, "a text that goes on in the next line"},
      {"y = \"\"\" \" \"\"\" " + open, "a text in three quotes"},
      {"# type: '''\n \" ''' + " + open, "a text in three quotes"},
      {"y = " + repeated("not ", 50000) + "True", "more than 300 operators in an expression"},
      {"x = x" + repeated(" + x", 50000), "operators in an expression"},
      {"x = x" + repeated(" + \\\n x", 50000), "operators in an expression"},
      {"x = x" + repeated("[0, 0]", 50000), "operators in an expression"},
      {"x = x" + repeated(".T", 50000), "operators in an expression"},
      {"y = " + repeated("1 if True else ", 50000) + "1", "operators in an expression"},
      {"f = " + repeated("lambda a, b: ", 50000) + "1", "has a lambda"},
      {"# type: " + repeated("not ", 50000), "operators in an expression"},
      {"if False:\n      x = x\n" + repeated("    elif False:\n      x = x\n", 50000),
       "more than 100 branches of elif"},
      {repeated("\n", 2000000), "more than 200 lines in a row without code"},
      {repeated("# \n", 2000000), "lines in a row without code"},
      {"x = x" + repeated("\\\n", 2000000), "lines in a row without code"},
      {blocks, "more than 200 columns in front of a line"}};
  for (const auto& [line, message] : cases) {
    file.forward = "    " + line + "\n    return torch.sum(torch.mul(x, self.w))\n";
    expect(Code::kUnsupported, message);
  }
}

// As deep as it may be, on the smallest stack that a binding's thread has.
TEST_F(BrokenScript, CodeThatIsTakenNeedsLittleStack) {
  file.forward = "    if False:\n      y = 1\n" + repeated("    elif False:\n      y = 1\n", 100);
  for (size_t i = 4; i < 198; ++i) {
    file.forward += std::string(i, ' ') + "if True:\n";
  }
  file.forward += std::string(198, ' ') + "b = " + repeated("not ", 90) + repeated("(", 199) +
                  "True" + repeated(")", 199) + "\n    return torch.sum(torch.mul(x, self.w))\n";
  const std::string path = write("m.pt", file.bytes());
  const auto body = [](void* given) -> void* {
    load_exported(*static_cast<const std::string*>(given));
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 20), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, body, const_cast<std::string*>(&path)), 0);
  EXPECT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

TEST_F(BrokenScript, ForwardOnlyComputes) {
  expect_forward("torch.save(x, \"/tmp/no\")", Code::kUnsupported, "aten::save, which does more");
  expect_forward(
      "p = __torch__.torch.classes.profiling._ScriptProfile.__new__("
      "__torch__.torch.classes.profiling._ScriptProfile)\n    _0 = (p).__init__()\n"
      "    _1 = (p).enable()",
      Code::kUnsupported,
      "its forward calls __init__ of __torch__.torch.classes.profiling._ScriptProfile, a class of "
      "C++");
  expect_forward("x = torch.from_file(\"/etc/passwd\", False, 4)", Code::kUnsupported,
                 "its forward uses aten::from_file, which does more than compute");
  expect_forward("y = torch.resize_(x, [100, 100])", Code::kUnsupported,
                 "its forward uses aten::resize_, which does more than compute");
  expect_forward("y = torch.add_(self.w, 1)", Code::kUnsupported,
                 "its forward changes the parameter w in place, which only an optimizer may");
  expect_forward("y = torch.mul_(torch.t(self.w), 2)", Code::kUnsupported,
                 "its forward changes the parameter w in place");
  expect_forward("self.w = x", Code::kUnsupported, "its forward assigns the attribute w");
}

// A value that is another's memory in the second round of a loop only, and one that is in a list.
TEST_F(BrokenScript, ChangesInPlaceAreFollowedThroughLoopsAndLists) {
  constexpr char kMessage[] = "its forward changes the parameter w in place";
  expect_forward(
      "y = torch.zeros([2, 3])\n    for i in range(2):\n      _0 = torch.add_(y, 1)\n"
      "      y = torch.t(self.w)",
      Code::kUnsupported, kMessage);
  expect_forward(
      "l = annotate(List[Tensor], [])\n    _0 = torch.append(l, self.w)\n"
      "    _1 = torch.add_(l[0], 1)",
      Code::kUnsupported, kMessage);
  file.forward =
      "    l = [self.w]\n    _0 = torch.append(l, self.w)\n    _1 = torch.append(l, x)\n"
      "    return torch.sum(torch.mul(x, l[0]))\n";
  EXPECT_NO_THROW(load());  // nothing that the list holds is changed
}

TEST_F(BrokenScript, AContextIsCodeToo) {
  file.more_classes =
      "class Guard:\n  t : Tensor\n  def __enter__(self: __torch__.Guard) -> NoneType:\n"
      "    self.t = torch.from_file(\"/etc/passwd\", False, 4)\n    return None\n"
      "  def __exit__(self: __torch__.Guard, a: Any, b: Any, c: Any) -> NoneType:\n"
      "    return None\n";
  file.forward =
      "    g = __torch__.Guard.__new__(__torch__.Guard)\n    with g:\n"
      "      y = torch.mul(x, self.w)\n    return torch.sum(y)\n";
  expect(Code::kUnsupported, "aten::from_file, which does more than compute");
}

TEST_F(BrokenScript, WhatWouldRunWhileLoadingIsRefused) {
  file.more_methods =
      "  def __getstate__(self: __torch__.M) -> int:\n    return 1\n"
      "  def __setstate__(self: __torch__.M, n: int) -> NoneType:\n    return None\n";
  expect(Code::kUnsupported, "__torch__.M has a method __setstate__, which would run while");
}

TEST_F(BrokenScript, InputsAreToldByTheirTypes) {
  file.arguments = "x: Tensor,\n    n: int,\n    scale: float=2.0";
  const ExportedModel model = load();
  EXPECT_EQ(model.module->input_count().required, 2U);
  EXPECT_EQ(model.module->input_count().most, 3U);
  const at::Tensor x = at::ones({2, 3}, at::device(at::kCPU));
  EXPECT_ERROR(model.module->check_inputs({x}), Code::kInvalidArgument,
               "expected 2 to 3 inputs, found 1");
  EXPECT_ERROR(model.module->check_inputs({x, x}), Code::kInvalidArgument,
               "its input n is of type int, found Tensor");
  EXPECT_ERROR(model.module->check_inputs({c10::IValue(), 1}), Code::kInvalidArgument,
               "its input x is of type Tensor, found NoneType");
}

TEST_F(BrokenScript, AnOperatorsErrorIsOneLine) {
  const ExportedModel model = load();
  nn::materialize(*model.module, *model.values);
  const at::Tensor x = at::ones({5, 7}, at::device(at::kCPU));
  EXPECT_ERROR((*model.module)(x), Code::kInvalidArgument,
               "m.pt: RuntimeError: The size of tensor a (7) must match");
}

// Checksums are right: it is the readers that have to notice.
TEST_F(BrokenScript, AnyDamageIsAModuleOrAnErrorOfOurs) {
  const std::vector<ckpt::ZipEntry> good = file.entries();
  const auto try_entry = [&](size_t index, const std::string& data) {
    std::vector<ckpt::ZipEntry> entries = good;
    entries[index].data = data;
    try {
      load_exported(write("m.pt", ckpt::zip_text(entries)));
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
    }
  };
  const std::string& code = good[0].data;
  for (size_t end = 0; end < code.size(); end += 3) {
    try_entry(0, code.substr(0, end));
  }
  const std::string& pickle = good[1].data;
  for (size_t at = 0; at < pickle.size(); ++at) {
    std::string damaged = pickle;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    try_entry(1, damaged);
    try_entry(1, pickle.substr(0, at));
  }
}

}  // namespace
}  // namespace fsdp2::exported
