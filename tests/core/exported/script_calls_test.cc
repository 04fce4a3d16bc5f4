// Scripts whose functions and classes name one another, which LibTorch's compiler follows by
// calling itself.
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>

#include "core/exported/exported_program.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

constexpr char kRefusal[] = "is in a row of functions or classes that name one another";

std::string number(int i) { return std::to_string(i); }

// f0 calls f1, and that f2, ...; `call` has "NEXT" for the next one's name.
std::string row_of_functions(int count, const std::string& call) {
  std::string code;
  for (int i = 0; i + 1 < count; ++i) {
    std::string body = call;
    body.replace(body.find("NEXT"), 4, "f" + number(i + 1));
    code += "def f" + number(i) + "(x: Tensor) -> Tensor:\n  " + body + "\n";
  }
  return code + "def f" + number(count - 1) + "(x: Tensor) -> Tensor:\n  return x\n";
}

class ScriptCalls : public FileTest {
 protected:
  ScriptCalls() { file.forward = "    return torch.sum(torch.mul(__torch__.f0(x), self.w))\n"; }

  ExportedModel load() const { return load_exported(write("m.pt", file.bytes())); }
  void expect(const std::string& message) const {
    EXPECT_ERROR(load(), Code::kUnsupported, message);
  }
  // Loads it on the smallest stack that a binding's thread has.
  void load_on_small_stack() const {
    const std::string path = write("m.pt", file.bytes());
    const auto body = [](void* given) -> void* {
      EXPECT_NO_THROW(load_exported(*static_cast<const std::string*>(given)));
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

  ScriptFile file;
};

TEST_F(ScriptCalls, ALongRowOfFunctionsIsRefused) {
  file.more_classes = row_of_functions(20000, "return __torch__.NEXT(x)");
  expect(kRefusal);
}

TEST_F(ScriptCalls, ALongRowOfMethodsIsRefused) {
  file.forward = "    return torch.sum(torch.mul((self).f0(x), self.w))\n";
  for (int i = 0; i < 3000; ++i) {
    file.more_methods += "  def f" + number(i) +
                         "(self: __torch__.M,\n    x: Tensor) -> Tensor:\n" +
                         "    return getattr(self, \"f" + number(i + 1) + "\")(x)\n";
  }
  expect(kRefusal);
}

TEST_F(ScriptCalls, ALongRowOfClassesIsRefused) {
  for (int i = 1000; i > 0; --i) {
    file.more_classes += "class C" + number(i) + ":\n  next : __torch__.C" + number(i + 1) +
                         "\n  def f(self: __torch__.C" + number(i) + ") -> int:\n    return 1\n";
  }
  expect(kRefusal);
}

TEST_F(ScriptCalls, ASecondDefinitionHidesNone) {
  const std::string none = "def f0(x: Tensor) -> Tensor:\n  return x\n";
  const std::string row = row_of_functions(3000, "return __torch__.NEXT(x)");
  file.more_classes = none + row;
  expect(kRefusal);
  file.more_classes = row + none;
  expect(kRefusal);
}

TEST_F(ScriptCalls, NamesInCommentsAndTextsCount) {
  file.more_classes = row_of_functions(3000, "return x  # type: '(__torch__.NEXT \"");
  expect(kRefusal);
}

TEST_F(ScriptCalls, ADefinitionIsReachedByItsWholeNameAlone) {
  file.more_classes = row_of_functions(2, "return __torch__.NEXT(x)");
  for (const std::string line :
       {"t = __torch__\n    y = t.f0(x)", "y = getattr(__torch__, \"f0\")(x)",
        "y = __torch__ .f0(x)", "y = __torch__.\\\n    f0(x)"}) {
    SCOPED_TRACE(line);
    file.forward = "    " + line + "\n    return torch.sum(torch.mul(y, self.w))\n";
    expect("its code names __torch__ by itself");
  }
}

// What LibTorch reads as a text could else hold a line that looks like another definition's.
TEST_F(ScriptCalls, TextsEndWithTheirLine) {
  for (const std::string begin : {"# type: \"\"\"\n", "y = \"\\\n"}) {
    SCOPED_TRACE(begin);
    file.more_classes =
        row_of_functions(3000, begin + "def g(x):\"\"\"\n  return __torch__.NEXT(x)");
    expect("a text ");
  }
}

TEST_F(ScriptCalls, CodeIsInFunctionsAndClasses) {
  file.more_classes = "  def f0(x: Tensor) -> Tensor:\n    return x\n";
  expect("has a line outside of functions and classes:   def f0(x: Tensor)");
  file.more_classes = "@ignore\n" + row_of_functions(2, "return __torch__.NEXT(x)");
  expect("has a line outside of functions and classes: @ignore");
  file.more_classes = "def \\\nf0(x: Tensor) -> Tensor:\n  return x\n";
  expect("a definition has no name on its line");
}

TEST_F(ScriptCalls, ACircleIsRefused) {
  file.more_classes = "def f0(x: Tensor) -> Tensor:\n  return __torch__.f1(x)\n" +
                      std::string("def f1(x: Tensor) -> Tensor:\n  return __torch__.f0(x)\n");
  expect("name one another in a circle");
}

TEST_F(ScriptCalls, CodeUnderOtherNamesIsNotSeen) {
  file.more = {{"m/code/other.py", "class C:\n  n : int\n"}};
  file.forward = "    y = annotate(Optional[other.C], None)\n    return torch.sum(self.w)\n";
  expect("other.C");
}

// As long, and as deep, as it may be.
TEST_F(ScriptCalls, WhatIsTakenCompiles) {
  file.more_classes = row_of_functions(350, "return __torch__.NEXT(x)");
  load_on_small_stack();
  file.more_classes = row_of_functions(
      15, "return " + std::string(190, '(') + "__torch__.NEXT(x)" + std::string(190, ')'));
  load_on_small_stack();
  std::string blocks;
  for (int i = 2; i < 30; ++i) {
    blocks += std::string(static_cast<size_t>(i), ' ') + "if True:\n";
  }
  const std::string inside = std::string(30, ' ');
  file.more_classes =
      row_of_functions(15, "y = x\n" + blocks + inside + "y = __torch__.NEXT(x)\n  return y");
  load_on_small_stack();
}

TEST_F(ScriptCalls, BlocksOfFunctionsAddUp) {
  std::string blocks;
  for (int i = 2; i < 60; ++i) {
    blocks += std::string(static_cast<size_t>(i), ' ') + "if bool(torch.sum(x)):\n";
  }
  file.more_classes = row_of_functions(
      15, "y = x\n" + blocks + std::string(60, ' ') + "y = __torch__.NEXT(x)\n  return y");
  expect("its forward has more than 500 blocks inside one another");
}

}  // namespace
}  // namespace fsdp2::exported
