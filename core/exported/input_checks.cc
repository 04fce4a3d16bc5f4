#include "core/exported/input_checks.h"

#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

using ckpt::printable_name;

class InputChecker {
 public:
  explicit InputChecker(const Program& program)
      : program_(program), sizes_(program.symbols.size(), -1) {}

  void check(const UserInput& input, const c10::IValue& value) {
    const std::string name = printable_name(input.name);
    FSDP2_CHECK(value.isTensor() && value.toTensor().defined(), Code::kInvalidArgument,
                "{}: input {}: expected a tensor, found {}", program_.label, name, value.tagKind());
    const at::Tensor& tensor = value.toTensor();
    FSDP2_CHECK(tensor.scalar_type() == input.dtype, Code::kInvalidArgument,
                "{}: input {}: expected type {}, found {}", program_.label, name,
                c10::toString(input.dtype), c10::toString(tensor.scalar_type()));
    FSDP2_CHECK(tensor.dim() == static_cast<int64_t>(input.sizes.size()), Code::kInvalidArgument,
                "{}: input {}: expected {} dims, found {}", program_.label, name,
                input.sizes.size(), tensor.dim());
    for (size_t dim = 0; dim < input.sizes.size(); ++dim) {
      check_size(fmt::format("{}: input {}: size of dim {}", program_.label, name, dim),
                 input.sizes[dim], tensor.size(static_cast<int64_t>(dim)));
    }
  }

 private:
  void check_size(const std::string& what, const Size& expected, int64_t found) {
    if (expected.symbol < 0) {
      FSDP2_CHECK(found == expected.fixed, Code::kInvalidArgument, "{}: expected {}, found {}",
                  what, expected.fixed, found);
      return;
    }
    const Symbol& symbol = program_.symbols[static_cast<size_t>(expected.symbol)];
    FSDP2_CHECK(
        (!symbol.least || found >= *symbol.least) && (!symbol.most || found <= *symbol.most),
        Code::kInvalidArgument, "{}: exported for {} to {}, found {}", what,
        symbol.least.value_or(0), symbol.most ? std::to_string(*symbol.most) : "any", found);
    int64_t& size = sizes_[static_cast<size_t>(expected.symbol)];
    FSDP2_CHECK(size < 0 || size == found, Code::kInvalidArgument,
                "{}: expected {}, which another input has, found {}", what, size, found);
    size = found;
  }

  const Program& program_;
  std::vector<int64_t> sizes_;  // by symbol; -1: not seen yet
};

}  // namespace

void check_program_inputs(const Program& program, const nn::Values& inputs) {
  FSDP2_CHECK(inputs.size() == program.inputs.size(), Code::kInvalidArgument,
              "{}: expected {} inputs, found {}", program.label, program.inputs.size(),
              inputs.size());
  InputChecker checker(program);
  for (size_t i = 0; i < inputs.size(); ++i) {
    checker.check(program.inputs[i], inputs[i]);
  }
}

}  // namespace fsdp2::exported
