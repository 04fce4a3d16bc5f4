// What goes into an exported program and what comes out: graph_module.signature and the ranges of
// its symbols.
#pragma once

#include "core/exported/program/json_document.h"
#include "core/exported/program/program.h"
#include "core/exported/program/value_scope.h"

namespace fsdp2::exported {

// Errors of all: kCorruptData, kUnsupported.
// Defines the graph's inputs.
void read_inputs(const JsonDocument& document, const json& signature, const json& graph,
                 ValueScope& scope, Program& program);
// REQUIRES: read_inputs was called, whose symbols get their ranges.
void read_ranges(const JsonDocument& document, const json& ranges, Program& program);
void read_outputs(const JsonDocument& document, const json& signature, const ValueScope& scope,
                  Program& program);

}  // namespace fsdp2::exported
