// Values in the types that an operator's schema asks for.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace fsdp2::operators {

// Changes a value to what the argument takes, as Python does: a number to a tensor, a whole one to
// a double, one number, alone or in a list, to a list of as many as the argument has. Whether it
// then fits.
bool fit_value(c10::IValue& value, const c10::Argument& formal);

// Whether an argument of whole numbers takes a list of `count`, of which one stands for as many as
// the argument has. Operators do not always count themselves: with too few, some read past the end.
bool takes_ints(size_t count, const c10::Argument& formal);

// What `type` is if it is no optional, and what it may be otherwise.
const c10::Type& without_optional(const c10::Type& type);
const c10::Type& without_optional(const c10::Type&& type) = delete;  // the result may be `type`

}  // namespace fsdp2::operators
