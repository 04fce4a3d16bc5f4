// Opens a checkpoint of whatever format for reading.
//
//   const auto source = open_checkpoint("out/step-00000100");
//   const StateEntry* entry = source->find("model.norm.weight");
//   source->read(*entry, {0}, out);
#pragma once

#include <memory>
#include <string>

#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

// Errors: those of detect_format and of the format's reader.
std::unique_ptr<StateSource> open_checkpoint(const std::string& path);

}  // namespace fsdp2::ckpt
