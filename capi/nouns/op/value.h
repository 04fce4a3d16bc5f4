// Values that cross the C ABI on their way to an operator and back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "capi/nouns/module/tensor.h"
#include "capi/object.h"
#include "include/fsdp2/op.h"

namespace fsdp2::capi {

// Whether the caller wants no gradients recorded; kInvalidArgument for other flags.
bool read_no_grad(uint32_t flags);

// An operator's inputs, in the types of its schema.
struct OperatorInputs {
  std::vector<c10::IValue> values;  // of all its arguments
  Producers producers;              // of all tensors among them
};

// Errors: kInvalidArgument, which names the argument and quotes the schema; HandleTable::pin's;
// kWrongState for a tensor whose memory FSDP has freed.
OperatorInputs read_values(const fsdp2_value* values, size_t count,
                           const c10::FunctionSchema& schema);

// What the caller gets: elements of lists one after the other. kUnsupported for what has no form in
// the C ABI.
std::vector<c10::IValue> flatten_results(std::vector<c10::IValue> results);

// A result as the caller gets it, its tensor in `given`.
fsdp2_value make_value(const c10::IValue& result, const Producers& producers, GivenTensors& given);

}  // namespace fsdp2::capi
