// fully_shard: the entry point. Applied bottom-up: a call takes every parameter at or below the
// module that no earlier call took. The outermost call of a tree is its root.
//
//   for (layer : layers) fully_shard(layer, mesh, policy);
//   auto root = fully_shard(model, mesh, policy);
//   load_parameters(*root, source);
//
// or, with the model's own idea of its units, fully_shard_by_kind (see wrap.h for more).
//
// All ranks of the mesh call with equal arguments on equal modules; load_parameters and the first
// use of the root agree on it. Other ranks of the job may do the same over their meshes, or
// anything else. One thread at a time per tree.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/parameter_values.h"
#include "core/fsdp/unit.h"
#include "core/fsdp/wrap.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

// kInvalidArgument for a mesh that nothing can be sharded over: of more than 2 dims, of 2 without
// names, or of shard groups that the policy's smaller group does not divide.
void check_mesh(const Mesh& mesh, const Policy& policy);

// Errors, with nothing changed: kInvalidArgument (mesh of more than 2 dims, a container without a
// forward of its own, a parameter of 0 dims, a shard dim that does not exist, mixed dtypes among
// the trainable parameters, a smaller group that does not divide the shard group), kUnsupported (a
// dim other than 0 that does not divide, pinned memory without an accelerator), kWrongState
// (already sharded, or below a module that is).
std::shared_ptr<Unit> fully_shard(const std::shared_ptr<nn::Module>& module,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy);

// Several modules as one group, gathered when the first of them runs and freed when the last has.
// Modules inside another one of the list are left out.
std::shared_ptr<Unit> fully_shard(const std::vector<std::shared_ptr<nn::Module>>& modules,
                                  const std::shared_ptr<Mesh>& mesh, const Policy& policy);

using ParameterSet = std::unordered_set<const at::TensorImpl*>;

// One call of fully_shard as wrapping policies make it.
struct UnitRequest {
  std::vector<std::string> names;  // of the modules, for Policy::shard_dim: "" or dotted with a dot
                                   // at the end
  std::vector<std::shared_ptr<nn::Module>> modules;
  ParameterSet left_out;  // parameters that go to a unit above
};
// Null, with nothing changed, if no parameter is left for the unit and none is sharded below.
std::shared_ptr<Unit> make_unit(const UnitRequest& request, const std::shared_ptr<Mesh>& mesh,
                                const Policy& policy);

}  // namespace fsdp2::fsdp
