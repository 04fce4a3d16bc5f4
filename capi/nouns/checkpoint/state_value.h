// Values of states as JSON.
#pragma once

#include <string>

#include "core/ckpt/value/python_value.h"

namespace fsdp2::capi {

// null, a flag, a number, a text, or a list of these; kInvalidArgument for anything else.
ckpt::PythonValue value_from_json(const std::string& json);
// kUnsupported for a value that JSON has no form for.
std::string value_to_json(const ckpt::PythonValue& value);

}  // namespace fsdp2::capi
