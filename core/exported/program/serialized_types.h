// The numbers by which the schema of exported programs stands for types; they are not LibTorch's.
#pragma once

#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include "core/exported/program/json_document.h"

namespace fsdp2::exported {

// Errors of all: kCorruptData (no number), kUnsupported (one that stands for none).
at::ScalarType read_dtype(const JsonDocument& document, const json& number);
at::MemoryFormat read_memory_format(const JsonDocument& document, const json& number);
// Also kUnsupported for a layout that is not strided.
void check_strided(const JsonDocument& document, const json& number);

}  // namespace fsdp2::exported
