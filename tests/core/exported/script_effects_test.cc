// Scripts that change parameters, or keep them, by way of lists, dicts and objects.
#include <gtest/gtest.h>

#include <string>

#include "core/exported/exported_program.h"
#include "tests/core/base/file_fixture.h"
#include "tests/core/exported/script_fixture.h"

namespace fsdp2::exported {
namespace {

constexpr char kChanges[] = "its forward changes the parameter w in place";

class ScriptEffects : public FileTest {
 protected:
  ExportedModel load_with(const std::string& lines) {
    file.forward = "    " + lines + "\n    return torch.sum(torch.mul(x, self.w))\n";
    return load_exported(write("m.pt", file.bytes()));
  }
  void expect(const std::string& lines, const std::string& message) {
    SCOPED_TRACE(lines);
    EXPECT_ERROR(load_with(lines), Code::kUnsupported, message);
  }

  ScriptFile file;
};

TEST_F(ScriptEffects, ADictHoldsWhatIsPutIntoIt) {
  expect(
      "d = annotate(Dict[str, Tensor], {})\n    _0 = torch._set_item(d, \"a\", self.w)\n"
      "    _1 = torch.add_(d[\"a\"], 1)",
      kChanges);
  expect("d = {\"a\": self.w}\n    _1 = torch.add_(torch.values(d)[0], 1)", kChanges);
}

TEST_F(ScriptEffects, AListHoldsWhatAnotherHeld) {
  expect(
      "l = annotate(List[Tensor], [])\n    torch.extend(l, [self.w])\n"
      "    _1 = torch.add_(l[0], 1)",
      kChanges);
  expect("l = torch.list([self.w])\n    _1 = torch.add_(l[0], 1)", kChanges);
}

TEST_F(ScriptEffects, AListInAListHoldsWhatIsPutIntoIt) {
  expect(
      "l = [annotate(List[Tensor], [])]\n    _0 = torch.append(l[0], self.w)\n"
      "    _1 = torch.add_(l[0][0], 1)",
      kChanges);
  expect(
      "inner = annotate(List[Tensor], [])\n    l = [inner]\n"
      "    _0 = torch.append(l[0], self.w)\n    _1 = torch.add_(inner[0], 1)",
      kChanges);
}

TEST_F(ScriptEffects, AnObjectHoldsWhatItIsGiven) {
  file.more_classes =
      "class Box:\n  t : Tensor\n  def __init__(self: __torch__.Box,\n    t: Tensor) -> NoneType:\n"
      "    self.t = t\n    return None\n";
  expect(
      "b = __torch__.Box.__new__(__torch__.Box)\n    _0 = (b).__init__(self.w, )\n"
      "    _1 = torch.add_(b.t, 1)",
      kChanges);
}

TEST_F(ScriptEffects, OperatorsOfListsDoNotChangeWhatTheseHold) {
  expect("l = [self.w]\n    torch._foreach_add_(l, 1)\n    x = torch.mul(x, l[0])",
         "its forward uses aten::_foreach_add_, which does more than compute");
}

TEST_F(ScriptEffects, WhatAContextChangesInPlaceIsRefused) {
  file.more_classes =
      "class Guard:\n  t : Tensor\n  def __init__(self: __torch__.Guard,\n    t: Tensor) -> "
      "NoneType:\n    self.t = t\n    return None\n"
      "  def __enter__(self: __torch__.Guard) -> NoneType:\n"
      "    _0 = torch.add_(self.t, 1)\n    return None\n"
      "  def __exit__(self: __torch__.Guard, a: Any, b: Any, c: Any) -> NoneType:\n"
      "    return None\n";
  expect(
      "g = __torch__.Guard.__new__(__torch__.Guard)\n    _0 = (g).__init__(self.w, )\n"
      "    with g:\n      y = torch.mul(x, self.w)",
      "what its `with` enters uses aten::add_, which changes something in place");
}

TEST_F(ScriptEffects, AParameterDoesNotOutliveTheCallInWhatWasThereBefore) {
  file.arguments = "x: Tensor,\n    kept: List[Tensor]";
  expect("_0 = torch.append(kept, self.w)", "its forward keeps the parameter w in kept");
  expect("_0 = torch.append(kept, torch.t(self.w))", "its forward keeps the parameter w in kept");
  expect("torch.extend(kept, [x, self.w])", "its forward keeps the parameter w in kept");
}

TEST_F(ScriptEffects, NumbersOfAParameterMayBeKept) {
  file.arguments = "x: Tensor,\n    kept: List[int]";
  EXPECT_NO_THROW(
      load_with("_0 = torch.append(kept, torch.size(self.w, 0))\n    torch.extend(kept, "
                "torch.size(self.w))"));
}

TEST_F(ScriptEffects, WhatIsNewMayBeChangedBesideAParameter) {
  EXPECT_NO_THROW(load_with(
      "y = torch.cat([self.w, x])\n    _0 = torch.add_(y, 1)\n    _1 = torch.add_(x, 1)"));
  EXPECT_NO_THROW(
      load_with("l = annotate(List[Tensor], [])\n    _0 = torch.append(l, self.w)\n"
                "    _1 = torch.append(l, x)\n    y = torch.cat(l)\n    _2 = torch.mul_(y, 2)"));
}

}  // namespace
}  // namespace fsdp2::exported
