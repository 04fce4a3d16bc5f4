// One argument of a node, in the forms that the schema of exported programs has for it.
#pragma once

#include "core/exported/program/json_document.h"
#include "core/exported/program/program.h"
#include "core/exported/program/value_scope.h"

namespace fsdp2::exported {

// Errors: kCorruptData; kUnsupported for a form that no program of operators needs (custom objects,
// graphs, complex numbers).
Argument read_argument(const JsonDocument& document, const ValueScope& scope, const json& argument);

// as_sym_int, as_sym_bool, as_sym_float: the kind of number; nullopt for any other form.
std::optional<ValueKind> number_form(std::string_view form);

}  // namespace fsdp2::exported
