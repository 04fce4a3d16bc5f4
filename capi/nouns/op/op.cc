#include "include/fsdp2/op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/module/tensor.h"
#include "capi/nouns/op/scope.h"
#include "capi/nouns/op/value.h"
#include "capi/object.h"
#include "core/base/text.h"
#include "core/nn/recompute/checkpoint_segment.h"
#include "core/operators/operator_rules.h"
#include "core/operators/run_operator.h"

namespace fsdp2::capi {

namespace {

constexpr const char* kNamespace = "aten::";

// An operator that may run, by "aten::name.overload".
c10::OperatorHandle resolve(const std::string& name) {
  FSDP2_CHECK(starts_with(name, kNamespace), Code::kUnsupported,
              "name: expected an operator of namespace aten (\"aten::linear\"), found \"{}\"",
              name);
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({name.substr(0, dot), overload});
  FSDP2_CHECK(op, Code::kNotFound,
              "name: this LibTorch has no operator \"{}\" (an overload follows a point: "
              "\"aten::add.Tensor\")",
              name);
  const c10::FunctionSchema& schema = op->schema();
  FSDP2_CHECK(
      operators::only_computes(schema) && !operators::changes_views(*op), Code::kUnsupported,
      "{}: it does more than compute a result or change values in place: it is not run", name);
  FSDP2_CHECK(operators::checks_its_arguments(schema), Code::kUnsupported,
              "{}: an internal operator of LibTorch, which does not check what it is given: it is "
              "not run",
              name);
  return *op;
}

struct KnownOperators {
  std::shared_mutex mutex;
  std::unordered_map<std::string, c10::OperatorHandle> by_name;
};

// As resolve, which is asked once for each operator.
c10::OperatorHandle find_operator(const std::string& name) {
  static auto& known = *new KnownOperators;  // threads may still call while the process ends
  {
    const std::shared_lock lock(known.mutex);
    const auto found = known.by_name.find(name);
    if (found != known.by_name.end()) {
      return found->second;
    }
  }
  const c10::OperatorHandle op = resolve(name);
  const std::unique_lock lock(known.mutex);
  known.by_name.emplace(name, op);
  return op;
}

std::string read_name(const char* name) { return read_text(name, kMaxName, "name"); }

bool returns_list(const c10::FunctionSchema& schema) {
  return std::any_of(
      schema.returns().begin(), schema.returns().end(),
      [](const c10::Argument& result) { return result.type()->kind() == c10::TypeKind::ListType; });
}

std::vector<c10::IValue> run(const std::string& name, const c10::OperatorHandle& op,
                             std::vector<c10::IValue> stack) {
  in_context(name, [&] { operators::run_operator(op, stack); });
  return flatten_results(std::move(stack));
}

struct Outputs {
  fsdp2_value* values;
  size_t cap;
  size_t* needed;
};

void call_operator(Call& call, const std::string& name, const fsdp2_value* given, size_t n_given,
                   uint32_t flags, ScopeObject* scope, const Outputs& outputs) {
  const bool records = call.caller_records_gradients() && !read_no_grad(flags);
  const c10::OperatorHandle op = find_operator(name);
  OperatorInputs inputs = read_values(given, n_given, op.schema());
  const size_t least = returns_list(op.schema()) ? 0 : op.schema().returns().size();
  check_room("outputs", outputs.values, outputs.cap, least,
             check_not_null(outputs.needed, "needed"));
  for (const c10::IValue& value : inputs.values) {
    if (value.isGenerator()) {
      nn::about_to_draw_from(value.toGenerator());
    }
  }
  const at::AutoGradMode grad_mode(records);
  const std::vector<c10::IValue> results = run(name, op, std::move(inputs.values));
  check_room("outputs", outputs.values, outputs.cap, results.size(), outputs.needed);
  GivenTensors tensors;
  std::vector<fsdp2_value> made;
  for (const c10::IValue& result : results) {
    made.push_back(make_value(result, inputs.producers, tensors));
  }
  if (scope != nullptr) {
    scope->add(tensors.handles());
  }
  tensors.keep();
  std::copy(made.begin(), made.end(), outputs.values);
  *outputs.needed = made.size();
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_op_call(const char* name, const fsdp2_value* inputs, size_t n_inputs,
                           uint32_t flags, fsdp2_scope scope, fsdp2_value* outputs, size_t cap,
                           size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto in = scope.id == 0 ? nullptr : pin(scope);
    capi::call_operator(call, capi::read_name(name), inputs, n_inputs, flags, in.get(),
                        {outputs, cap, needed});
  });
}

fsdp2_status fsdp2_op_get_schema(const char* name, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const c10::OperatorHandle op = capi::find_operator(capi::read_name(name));
    capi::write_text(c10::toString(op.schema()), buf, cap, needed);
  });
}
