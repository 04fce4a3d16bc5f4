// The object behind a state handle.
#pragma once

#include <memory>

#include "capi/object.h"
#include "core/ckpt/state/state_dict.h"

namespace fsdp2::capi {

struct StateObject {
  std::shared_ptr<MeshObject> mesh;
  ckpt::StateDict state;
  const std::shared_ptr<Busy> busy = std::make_shared<Busy>("state");
};

inline std::shared_ptr<StateObject> pin(fsdp2_state state) {
  return std::static_pointer_cast<StateObject>(HandleTable::global().pin(state.id, Kind::kState));
}

// The state is this call's alone.
inline void enter(Call& call, const StateObject& state) {
  call.occupy(state.busy);
  call.about(state.mesh->mesh);
}

}  // namespace fsdp2::capi
