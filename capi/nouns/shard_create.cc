#include "capi/nouns/shard_create.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "capi/argument.h"
#include "capi/nouns/module.h"
#include "capi/nouns/module_path.h"
#include "capi/nouns/shard_options.h"
#include "capi/sized_struct.h"
#include "core/base/log.h"
#include "core/comm/agreement.h"
#include "core/fsdp/unit_tree.h"

namespace fsdp2::capi {

namespace {

std::string text_of(const models::CausalLM& module) {
  std::string text = fmt::format("model={}\n", module.kind());
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    text += fmt::format("{}={} {}{}\n", parameter.names.front(),
                        c10::toString(parameter.tensor.scalar_type()),
                        fmt::join(parameter.tensor.sizes(), "x"),
                        parameter.tensor.requires_grad() ? "" : " frozen");
  }
  return text;
}

void check_may_be_sharded(const ModuleObject& object, const MeshObject& mesh) {
  check_usable(object);
  FSDP2_CHECK(object.mesh == nullptr, Code::kWrongState,
              "module: expected one that is not sharded yet, found one that is; make units of the "
              "modules in it before it");
  FSDP2_CHECK(object.units_mesh == nullptr || *object.units_mesh->mesh == *mesh.mesh,
              Code::kInvalidArgument,
              "mesh: expected {}, which modules of this one are sharded over, found {}",
              object.units_mesh ? object.units_mesh->mesh->to_string() : "",
              mesh.mesh->to_string());
}

// Runs the part that changes the module on all ranks. Afterwards the module is spoiled unless it is
// the same as before, or as it should be, on every rank.
template <typename Change>
void change_module(ModuleObject& object, World& world, const char* function, Change&& change) {
  const size_t before = fsdp::UnitTree::units_below(*object.module).size();
  object.spoiled = true;
  bool failed_here = false;
  try {
    agree(world, function, [&] {
      try {
        change();
      } catch (...) {
        failed_here = true;
        throw;
      }
      return std::string();
    });
  } catch (...) {
    const size_t after = fsdp::UnitTree::units_below(*object.module).size();
    object.spoiled = !failed_here || after != before;
    throw;
  }
  object.spoiled = false;
}

std::vector<std::string> read_paths(const char* const* names, size_t n_names) {
  std::vector<std::string> paths = read_texts(names, n_names, kMaxName, "names");
  FSDP2_CHECK(!paths.empty(), Code::kInvalidArgument, "names: expected one module at least");
  for (const std::string& path : paths) {
    FSDP2_CHECK(!path.empty(), Code::kInvalidArgument,
                "names: expected paths of modules below the module, which fsdp2_shard_create "
                "shards itself; found an empty text");
  }
  return paths;
}

// Without those that are inside another one, or named twice.
std::vector<std::string> outermost(const std::vector<std::string>& paths) {
  std::vector<std::string> kept;
  for (const std::string& path : paths) {
    const bool inside = std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
      return path.rfind(other + ".", 0) == 0;
    });
    if (!inside && std::find(kept.begin(), kept.end(), path) == kept.end()) {
      kept.push_back(path);
    }
  }
  return kept;
}

fsdp::UnitRequest unit_request(const ModuleObject& object, const std::vector<std::string>& paths) {
  fsdp::UnitRequest request;
  for (const std::string& path : outermost(paths)) {
    std::shared_ptr<nn::Module> module = find_module(object.module, path, "names");
    const bool is_new =
        std::find(request.modules.begin(), request.modules.end(), module) == request.modules.end();
    if (is_new) {
      request.names.push_back(path + ".");
      request.modules.push_back(std::move(module));
    }
  }
  return request;
}

void make_unit(const fsdp::UnitRequest& request, const std::vector<std::string>& paths,
               const std::shared_ptr<Mesh>& mesh, const fsdp::Policy& policy) {
  std::shared_ptr<fsdp::Unit> unit;
  try {
    unit = fsdp::make_unit(request, mesh, policy);
  } catch (const Error& error) {
    fail(error.code(), "names '{}': {}", fmt::join(paths, "', '"), error.message());
  }
  FSDP2_CHECK(unit != nullptr, Code::kWrongState,
              "names '{}': no parameters are left to shard: a module above is sharded already "
              "(shard children before their parents), or there are none",
              fmt::join(paths, "', '"));
}

}  // namespace

void shard_modules(Call& call, fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
                   size_t n_names, const fsdp2_shard_options* given) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  World& world = mesh_object->mesh->world();
  std::shared_ptr<ModuleObject> object;
  ShardSettings settings;
  std::vector<std::string> paths;
  fsdp::UnitRequest request;
  agree(world, call.function(), [&] {
    object = pin(module);
    call.occupy(object->busy);
    check_may_be_sharded(*object, *mesh_object);
    paths = read_paths(names, n_names);
    const fsdp2_shard_options options = read_struct(given, kShardDefaults, "options");
    check_no_wrap(options);
    settings = read_shard_settings(options, *object->module, {}, *mesh_object->mesh);
    request = unit_request(*object, paths);
    return fmt::format("modules={}\n", fmt::join(paths, ",")) + settings.text +
           text_of(*object->module);
  });
  change_module(*object, world, call.function(),
                [&] { make_unit(request, paths, mesh_object->mesh, settings.policy); });
  object->units_mesh = mesh_object;
}

uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* given, const fsdp2_shard* out) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  World& world = mesh_object->mesh->world();
  std::shared_ptr<ModuleObject> object;
  ShardSettings settings;
  agree(world, call.function(), [&] {
    object = pin(module);
    call.occupy(object->busy);
    check_not_null(out, "out");
    check_may_be_sharded(*object, *mesh_object);
    settings = read_shard_settings(read_struct(given, kShardDefaults, "options"), *object->module,
                                   object->module->no_split_kinds(), *mesh_object->mesh);
    return settings.text + text_of(*object->module);
  });
  auto shard = std::make_shared<ShardObject>();
  shard->module = object;
  shard->load_from = settings.load_from;
  change_module(*object, world, call.function(), [&] {
    shard->root = fsdp::fully_shard_wrapped(object->module, mesh_object->mesh, settings.policy,
                                            settings.wrap);
  });
  object->spoiled = true;
  shard->root->tree();
  if (object->source && !settings.defer_values) {
    load_values(*shard);
  }
  shard->counters_at_reset = shard->root->comm_counters();
  object->mesh = mesh_object;
  object->units_mesh = nullptr;
  object->spoiled = false;
  log(LogLevel::kInfo, "fsdp", "sharded {} over {}", object->module->kind(),
      mesh_object->mesh->to_string());
  return give(Kind::kShard, std::move(shard));
}

void check_awaits_values(const ShardObject& shard) {
  FSDP2_CHECK(shard.module->source != nullptr, Code::kWrongState,
              "shard: expected one without values (defer_values), found one that has them");
}

void load_values(ShardObject& shard) {
  ModuleObject& object = *shard.module;
  fsdp::load_parameters(*shard.root, *object.source, shard.load_from);
  object.source = nullptr;
}

}  // namespace fsdp2::capi
