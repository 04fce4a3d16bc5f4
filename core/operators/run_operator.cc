#include "core/operators/run_operator.h"

#include <exception>

#include "core/base/error.h"
#include "core/operators/argument_checks.h"

namespace fsdp2::operators {

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    check_arguments(op.schema(), stack);
    op.callBoxed(stack);
  } catch (const std::exception&) {
    const Error error = current_exception_as_error();
    // Numbers that the dtype cannot hold are no c10::Error.
    fail(error.code() == Code::kInternal ? Code::kInvalidArgument : error.code(), "{}",
         error.message());
  }
}

}  // namespace fsdp2::operators
