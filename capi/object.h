// What the handles stand for. An object holds all that it needs, so handles may be destroyed in any
// order; members are declared so that what is needed is destroyed after what needs it.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/busy.h"
#include "capi/fork.h"
#include "capi/guard.h"
#include "capi/handle.h"
#include "core/comm/agreement.h"
#include "core/comm/comm.h"
#include "core/comm/mesh.h"
#include "core/comm/world.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"
#include "core/nn/parameter_source.h"
#include "core/train/checkpointer.h"
#include "core/train/optim/optimizer.h"
#include "core/train/session.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

struct MeshObject {
  std::shared_ptr<Busy> busy;  // of the job: all meshes of it share it
  std::shared_ptr<Mesh> mesh;
};

// A parameter of a module as it was made: sharding puts other tensors in its place.
struct ModuleParameter {
  std::vector<std::string> names;  // dotted; names[0] is the parameter's own, the rest are ties
  std::vector<int64_t> shape;
  at::ScalarType dtype;
};

struct ModuleObject {
  ModuleObject(std::shared_ptr<nn::Module> module_in,
               std::shared_ptr<nn::ParameterSource> source_in,
               std::vector<ModuleParameter> parameters)
      : module(std::move(module_in)),
        session(std::make_shared<train::Session>(module, std::move(source_in))) {
    set_parameters(std::move(parameters));
  }

  // As they were when the module was last put together. For any thread, also one that has not
  // entered the module.
  std::shared_ptr<const std::vector<ModuleParameter>> parameters() const {
    return std::atomic_load(&parameters_);
  }
  void set_parameters(std::vector<ModuleParameter> parameters) {
    std::atomic_store(&parameters_,
                      std::make_shared<const std::vector<ModuleParameter>>(std::move(parameters)));
  }

  const std::shared_ptr<nn::Module> module;
  // The module, its shard, their optimizers and steps share it; what follows is read and changed
  // under it.
  const std::shared_ptr<Busy> busy = std::make_shared<Busy>("model");
  const std::shared_ptr<train::Session> session;
  std::shared_ptr<MeshObject> mesh;   // that the whole is sharded over, once it is
  at::ScalarType dtype = at::kFloat;  // of parameters that are added
  // Its parts live as long as it does, whatever becomes of their handles: theirs lead to the whole.
  std::vector<std::shared_ptr<ModuleObject>> parts;

  // For any thread, since no one enters a part.
  bool is_part() const { return is_part_.load(std::memory_order_acquire); }
  // What the module is a part of; null if that has been destroyed. REQUIRES: is_part().
  std::shared_ptr<ModuleObject> parent() const { return parent_.lock(); }
  // REQUIRES: it is no part yet, and has been entered.
  void become_part_of(const std::shared_ptr<ModuleObject>& parent) {
    parent_ = parent;
    is_part_.store(true, std::memory_order_release);
  }

 private:
  std::shared_ptr<const std::vector<ModuleParameter>> parameters_;
  // Weak, or a forward that holds the handles of the children that it calls would keep itself
  // alive. Written once, before is_part_.
  std::weak_ptr<ModuleObject> parent_;
  std::atomic<bool> is_part_{false};
};

// The module that is a part of no other, and has the state of all in it.
inline std::shared_ptr<ModuleObject> whole_of(std::shared_ptr<ModuleObject> object) {
  while (object->is_part()) {
    object = object->parent();
    FSDP2_CHECK(object != nullptr, Code::kWrongState,
                "module: the one that it is a part of has been destroyed");
  }
  return object;
}

inline void check_is_whole(const ModuleObject& module) {
  FSDP2_CHECK(!module.is_part(), Code::kWrongState,
              "module: expected a whole one, found a part of another, which serves only to call "
              "it: pass the handle of the whole");
}

// A module in whose graph a tensor is.
struct Producer {
  std::shared_ptr<ModuleObject> module;
  bool was_sharded;  // when its forward ran
};

struct TensorObject {
  // That which made the tensor first, then those which made its inputs. Empty outside any graph.
  std::vector<Producer> producers;
  at::Tensor tensor;
  std::atomic<bool> spent{false};  // backward has run from here
};

struct ShardObject {
  std::shared_ptr<ModuleObject> module;
  std::shared_ptr<fsdp::Unit> root;
  CommCounters counters_at_reset;
  std::optional<train::Checkpointer> checkpointer;
};

struct OptimizerObject {
  std::shared_ptr<ShardObject> shard;
  std::shared_ptr<train::Optimizer> optimizer;
};

// The object of a handle, kept alive by the pointer. Errors: HandleTable::pin's.
inline std::shared_ptr<MeshObject> pin(fsdp2_mesh mesh) {
  return std::static_pointer_cast<MeshObject>(HandleTable::global().pin(mesh.id, Kind::kMesh));
}
inline std::shared_ptr<TensorObject> pin(fsdp2_tensor tensor) {
  return std::static_pointer_cast<TensorObject>(
      HandleTable::global().pin(tensor.id, Kind::kTensor));
}
inline std::shared_ptr<ModuleObject> pin(fsdp2_module module) {
  return std::static_pointer_cast<ModuleObject>(
      HandleTable::global().pin(module.id, Kind::kModule));
}
inline std::shared_ptr<ShardObject> pin(fsdp2_shard shard) {
  return std::static_pointer_cast<ShardObject>(HandleTable::global().pin(shard.id, Kind::kShard));
}
inline std::shared_ptr<OptimizerObject> pin(fsdp2_optimizer optimizer) {
  return std::static_pointer_cast<OptimizerObject>(
      HandleTable::global().pin(optimizer.id, Kind::kOptimizer));
}

// A new handle to the object.
inline uint64_t give(Kind kind, std::shared_ptr<void> object) {
  note_use();
  return HandleTable::global().insert(kind, std::move(object));
}

// All of fsdp2_..._destroy: the null handle is fine.
inline fsdp2_status destroy(const char* function, Kind kind, uint64_t id) {
  return guard(function, [&](Call&) {
    if (id != 0) {
      HandleTable::global().remove(id, kind);
    }
  });
}

// All of fsdp2_..._duplicate: another handle to the object, whoever is using it.
template <typename Handle>
fsdp2_status duplicate(const char* function, Kind kind, Handle handle, Handle* out) {
  return guard(function, [&](Call&) {
    std::shared_ptr<void> object = HandleTable::global().pin(handle.id, kind);
    check_not_null(out, "out");
    out->id = give(kind, std::move(object));
  });
}

// The mesh is this call's alone, and the call is about it.
inline void enter(Call& call, const MeshObject& mesh) {
  call.about(mesh.mesh);
  call.occupy(mesh.busy);
}

// As enter, for a collective on the caller's own tensors, which a callback may make, too.
inline void enter_collective(Call& call, const MeshObject& mesh) {
  call.about(mesh.mesh);
  call.join(mesh.busy, Nested::kCollectives);
}

// The tree is this call's alone; so is its mesh, if it has one and the call communicates.
inline void enter(Call& call, const ModuleObject& module) {
  call.occupy(module.busy);
  check_is_whole(module);
  if (module.mesh) {
    call.about_model_on(module.mesh->mesh);
  }
}
inline void enter_collective(Call& call, const ModuleObject& module) {
  enter(call, module);
  if (module.mesh) {
    call.occupy(module.mesh->busy);
  }
}

// As enter, for a call that changes nothing, which a callback may make, too.
inline void enter_to_read(Call& call, const ModuleObject& module) {
  call.join(module.busy, Nested::kReads);
  check_is_whole(module);
  if (module.mesh) {
    call.about_model_on(module.mesh->mesh);
  }
}
// As enter_collective, for a forward, which the callback of a forward around it may make, too.
inline void enter_forward(Call& call, const ModuleObject& module) {
  call.join(module.busy, Nested::kForwards);
  check_is_whole(module);  // another thread may have made it a part just now
  if (module.mesh) {
    call.about_model_on(module.mesh->mesh);
    call.join(module.mesh->busy, Nested::kForwards);
  }
}

// For collective calls of which not every one counts: all ranks look at their arguments together
// before any communicates. If one throws, it has its own error and the others kPeerFailed with that
// rank's number and text, at once, and the mesh stays usable. `check` returns what must be the same
// on all ranks (agreement.h).
// REQUIRES: enter_collective.
template <typename Check>
void agree_on_all_ranks(Call& call, const ModuleObject& module, const Check& check) {
  if (!module.mesh) {
    check();
    return;
  }
  agree(module.mesh->mesh->team(), call.function(), check);
}
// As agree_on_all_ranks, with nothing that must be the same.
template <typename Check>
void check_on_all_ranks(Call& call, const ModuleObject& module, const Check& check) {
  agree_on_all_ranks(call, module, [&] {
    check();
    return std::string();
  });
}

}  // namespace fsdp2::capi
