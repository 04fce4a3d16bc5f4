#include "core/fsdp/wrap.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/fsdp/fully_shard.h"
#include "core/nn/module_list.h"
#include "core/nn/parameter_reads.h"

namespace fsdp2::fsdp {

namespace {

// How many modules hold each parameter, or read it where others hold it.
using HolderCounts = std::unordered_map<const at::TensorImpl*, int>;

HolderCounts count_holders(const std::vector<std::shared_ptr<nn::Module>>& roots) {
  HolderCounts counts;
  std::unordered_set<const torch::nn::Module*> seen;
  const auto count = [&](const torch::nn::Module& holder) {
    if (seen.insert(&holder).second) {
      for (const at::Tensor& parameter : holder.parameters(/*recurse=*/false)) {
        ++counts[parameter.unsafeGetTensorImpl()];
      }
      if (const auto* borrower = dynamic_cast<const nn::ParameterBorrower*>(&holder)) {
        for (const at::Tensor& parameter : borrower->borrowed_parameters()) {
          ++counts[parameter.unsafeGetTensorImpl()];
        }
      }
    }
  };
  for (const auto& root : roots) {
    count(*root);
    for (const auto& below : root->modules(/*include_self=*/false)) {
      count(*below);
    }
  }
  return counts;
}

class Wrapper {
 public:
  Wrapper(const std::shared_ptr<nn::Module>& root, const std::shared_ptr<Mesh>& mesh,
          const Policy& policy, const Wrap& wrap)
      : mesh_(mesh), policy_(policy), wrap_(wrap), whole_tree_(count_holders({root})) {}

  int units_made() const { return units_made_; }

  void shard_below(const nn::Module& module, const std::string& prefix) {
    UnitRequest run;  // of consecutive siblings
    for (const auto& [name, child] : module.child_modules()) {
      const std::string path = prefix + name;
      shard_below(*child, path + ".");
      if (find_unit(*child) != nullptr || is_container(*child)) {
        continue;
      }
      if (is_listed(*child, wrap_.kinds)) {
        run.names.push_back(path + ".");
        run.modules.push_back(child);
        if (run.modules.size() == static_cast<size_t>(wrap_.modules_per_unit)) {
          shard(std::exchange(run, {}));
        }
      } else if (std::find(wrap_.names.begin(), wrap_.names.end(), path) != wrap_.names.end() ||
                 is_large(*child)) {
        shard({{path + "."}, {child}, {}});
      }
    }
    if (!run.modules.empty()) {
      shard(std::move(run));
    }
  }

 private:
  static bool is_container(const nn::Module& module) {
    return dynamic_cast<const nn::ModuleList*>(&module) != nullptr;
  }

  static bool is_listed(const nn::Module& module, const std::vector<std::string>& kinds) {
    return module.is_of_any_class(kinds);
  }

  bool is_large(const nn::Module& module) const {
    if (wrap_.min_numel <= 0) {
      return false;
    }
    int64_t numel = 0;
    for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
      numel += ShardedParam::manages(parameter.tensor) ? 0 : parameter.tensor.numel();
    }
    return numel >= wrap_.min_numel;
  }

  void shard(UnitRequest request) {
    for (const auto& [parameter, count] : count_holders(request.modules)) {
      if (count < whole_tree_.at(parameter)) {
        request.left_out.insert(parameter);  // tied to a place outside
      }
    }
    if (make_unit(request, mesh_, policy_) == nullptr) {
      log(LogLevel::kInfo, "fsdp",
          "{} is no unit: its parameters are sharded already, or tied to others outside it",
          request.names.front());
      return;
    }
    ++units_made_;
  }

  const std::shared_ptr<Mesh>& mesh_;
  const Policy& policy_;
  const Wrap& wrap_;
  const HolderCounts whole_tree_;
  int units_made_ = 0;
};

void check_names(const nn::Module& module, const Wrap& wrap) {
  const auto modules = module.named_modules();
  for (const std::string& name : wrap.names) {
    FSDP2_CHECK(modules.contains(name), Code::kNotFound,
                "wrapping policy: there is no module '{}' in {}", name, module.kind());
  }
  FSDP2_CHECK(wrap.modules_per_unit >= 1, Code::kInvalidArgument,
              "wrapping policy: expected at least 1 module a unit, found {}",
              wrap.modules_per_unit);
}

}  // namespace

int wrap_modules(const std::shared_ptr<nn::Module>& module, const std::shared_ptr<Mesh>& mesh,
                 const Policy& policy, const Wrap& wrap) {
  FSDP2_CHECK(find_unit(*module) == nullptr, Code::kWrongState,
              "fully_shard of {}: the module is already sharded", module->kind());
  check_names(*module, wrap);
  Wrapper wrapper(module, mesh, policy, wrap);
  wrapper.shard_below(*module, "");
  return wrapper.units_made();
}

std::shared_ptr<Unit> fully_shard_wrapped(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const Wrap& wrap) {
  Policy inside = policy;
  inside.mixed_precision.output_dtype.reset();
  wrap_modules(module, mesh, inside, wrap);
  return fully_shard(module, mesh, policy);
}

std::shared_ptr<Unit> fully_shard_by_kind(const std::shared_ptr<nn::Module>& module,
                                          const std::shared_ptr<Mesh>& mesh, const Policy& policy,
                                          const std::vector<std::string>& kinds) {
  Wrap wrap;
  wrap.kinds = kinds;
  return fully_shard_wrapped(module, mesh, policy, wrap);
}

}  // namespace fsdp2::fsdp
