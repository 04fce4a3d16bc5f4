// Where a checkpoint has its model, for formats that hold nothing else.
#pragma once

#include <string>

#include "core/ckpt/state/state_source.h"
#include "core/ckpt/value/state_path.h"

namespace fsdp2::ckpt {

inline constexpr char kModel[] = "model";  // the dict that it is in, in most checkpoints

struct PlaceOfModel {
  StatePath dict;     // that holds it; empty: nothing tells it from the rest
  std::string begin;  // of all names in it, and none of the model's: "model."

  bool has(const StateEntry& entry) const;
  // Without the dict and what names begin with. REQUIRES: has(entry).
  StatePath path_in_model(const StateEntry& entry) const;
};

// "model"; or where nothing is there the only dict of that name further down, as in
// {"app": {"model": ..., "optim": ...}}; or else "state_dict". In Lightning's that is of the module
// around the model: the model is the module's one attribute with tensors. Error: kInvalidArgument
// for several models.
PlaceOfModel place_of_model(const StateSource& source);

}  // namespace fsdp2::ckpt
