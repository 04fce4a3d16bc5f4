// Wrapping policies: which modules of a model become units of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/fsdp/group/policy.h"
#include "core/fsdp/unit.h"
#include "core/nn/module.h"

namespace fsdp2::fsdp {

struct Wrap {
  std::vector<std::string> kinds;  // class names: each such module is a unit
  std::vector<std::string> names;  // dotted paths: each such module is a unit
  int modules_per_unit = 1;        // so many consecutive siblings of `kinds` make one unit
  int64_t min_numel = 0;  // > 0: so does any module with at least so many parameter elements that
                          // no module below it has taken
};

// fully_shard on every module below `module` that `wrap` names, inner ones first. A parameter that
// is tied across these units, or read by a module of another one (parameter_reads.h), goes to
// the unit of the places' common parent; a module that is left without parameters by that is no
// unit. One call is one rule: modules that want another policy or mesh than those around them
// (experts, say) are wrapped by a call of their own before. Returns how many units it has made.
// Errors: as fully_shard, kNotFound for a name that is not there.
int wrap_modules(const std::shared_ptr<nn::Module>& module, const std::shared_ptr<Mesh>& mesh,
                 const Policy& policy, const Wrap& wrap);

// wrap_modules, then fully_shard on `module` itself, whose unit is returned. The output dtype is
// that of `module`'s output, not of the units inside.
std::shared_ptr<Unit> fully_shard_wrapped(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const Wrap& wrap);

std::shared_ptr<Unit> fully_shard_by_kind(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const std::vector<std::string>& kinds);

}  // namespace fsdp2::fsdp
