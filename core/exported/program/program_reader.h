// models/model.json of an exported program: what torch.export serialises, of schema major 8.
//
// Read are programs as torch.export.export returns them ("TRAINING"): operators as eager Python
// calls them. Decomposed ones ("ATEN") are refused, as no_grad regions leave no trace in them and
// gradients would be wrong. The two higher-order operators that only set a mode
// (wrap_with_set_grad_enabled, wrap_with_autocast) are read as their nodes with that mode; others
// are refused by name.
#pragma once

#include <string>

#include "core/exported/program/program.h"

namespace fsdp2::exported {

// `label` names the file. Errors: kCorruptData, kUnsupported, naming file and key.
Program read_program(const std::string& text, const std::string& label);

}  // namespace fsdp2::exported
