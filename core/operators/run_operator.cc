#include "core/operators/run_operator.h"

#include <ATen/ops/all.h>
#include <ATen/ops/isfinite.h>

#include <exception>

#include "core/base/error.h"
#include "core/operators/operator_rules.h"

namespace fsdp2::operators {

namespace {

void check_finite(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  for (const c10::IValue& value : torch::jit::last(stack, schema.arguments().size())) {
    FSDP2_CHECK(!value.isTensor() || at::isfinite(value.toTensor()).all().item<bool>(),
                Code::kInvalidArgument, "{}: expected finite values, found an infinity or a NaN",
                schema.name());
  }
}

}  // namespace

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    if (needs_finite_values(op.schema())) {
      check_finite(op.schema(), stack);
    }
    op.callBoxed(stack);
  } catch (const std::exception&) {
    const Error error = current_exception_as_error();
    // Numbers that the dtype cannot hold are no c10::Error.
    fail(error.code() == Code::kInternal ? Code::kInvalidArgument : error.code(), "{}",
         error.message());
  }
}

}  // namespace fsdp2::operators
