#include "capi/nouns/shard/shard_create.h"

#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/nouns/shard/shard_options.h"
#include "core/train/session.h"

namespace fsdp2::capi {

namespace {

// The module that a request is about, entered.
std::shared_ptr<ModuleObject> enter_module(Call& call, fsdp2_module module,
                                           train::ShardRequest& request) {
  std::shared_ptr<ModuleObject> object = pin(module);
  call.occupy(object->busy);
  check_is_whole(*object);
  request.session = object->session;
  return object;
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

}  // namespace

void make_unit(Call& call, fsdp2_module module, fsdp2_mesh mesh, const char* const* names,
               size_t n_names, const fsdp2_shard_options* given) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  train::Session::make_unit(mesh_object->mesh, call.function(), [&] {
    train::ShardRequest request;
    enter_module(call, module, request);
    request.paths = read_paths(names, n_names);
    read_unit_options(given, request);
    return request;
  });
}

void make_units(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                const fsdp2_shard_options* given) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  train::Session::make_units(mesh_object->mesh, call.function(), [&] {
    train::ShardRequest request;
    enter_module(call, module, request);
    read_wrap_options(given, request);
    return request;
  });
}

uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* given, const fsdp2_shard* out) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  auto shard = std::make_shared<ShardObject>();
  shard->root = train::Session::shard(mesh_object->mesh, call.function(), [&] {
    train::ShardRequest request;
    shard->module = enter_module(call, module, request);
    check_not_null(out, "out");
    read_shard_options(given, request);
    return request;
  });
  shard->checkpointer.emplace(shard->root);
  shard->counters_at_reset = shard->root->comm_counters();
  shard->module->mesh = mesh_object;
  return give(Kind::kShard, std::move(shard));
}

}  // namespace fsdp2::capi
