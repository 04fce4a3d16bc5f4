#include "capi/shard_create.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "capi/argument.h"
#include "capi/dtype.h"
#include "capi/module.h"
#include "capi/sized_struct.h"
#include "core/base/log.h"
#include "core/comm/agreement.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_shard_options kDefaults = FSDP2_SHARD_OPTIONS_INIT;
constexpr int32_t kMaxPrefetch = 1024;

fsdp::ReshardAfterForward read_reshard(int32_t value) {
  FSDP2_CHECK(value < 2, Code::kUnsupported,
              "options.reshard_after_forward: keeping a 1/{} slice after forward is not provided "
              "yet; expected 0 (automatic), -1 (always) or 1 (never)",
              value);
  switch (value) {
    case 0:
      return fsdp::ReshardAfterForward::kAuto;
    case -1:
      return fsdp::ReshardAfterForward::kAlways;
    case 1:
      return fsdp::ReshardAfterForward::kNever;
    default:
      fail(Code::kInvalidArgument,
           "options.reshard_after_forward: expected 0 (automatic), -1 (always) or 1 (never), found "
           "{}",
           value);
  }
}

fsdp::CommPath read_comm_path(int32_t value) {
  switch (value) {
    case FSDP2_COMM_PATH_AUTO:
      return fsdp::CommPath::kAuto;
    case FSDP2_COMM_PATH_DIRECT:
      return fsdp::CommPath::kDirect;
    case FSDP2_COMM_PATH_PACKED:
      return fsdp::CommPath::kPacked;
    default:
      fail(Code::kInvalidArgument,
           "options.comm_path: expected FSDP2_COMM_PATH_AUTO (0), _DIRECT "
           "(1) or _PACKED (2), found {}",
           value);
  }
}

int read_prefetch(int32_t value) {
  check_integer(value, -1, kMaxPrefetch, "options.prefetch");
  return value == 0 ? 1 : std::max(value, 0);
}

fsdp::Policy read_policy(const fsdp2_shard_options& options) {
  FSDP2_CHECK(
      !read_flag(options.cpu_offload, "options.cpu_offload"), Code::kUnsupported,
      "options.cpu_offload: shards in CPU memory are not provided yet; expected 0, found 1");
  fsdp::Policy policy;
  policy.reshard_after_forward = read_reshard(options.reshard_after_forward);
  auto& mixed = policy.mixed_precision;
  mixed.param_dtype = read_float_dtype_or_keep(options.param_dtype, "options.param_dtype");
  mixed.reduce_dtype = read_float_dtype_or_keep(options.reduce_dtype, "options.reduce_dtype");
  mixed.output_dtype = read_float_dtype_or_keep(options.output_dtype, "options.output_dtype");
  mixed.cast_forward_inputs =
      !read_flag(options.no_cast_forward_inputs, "options.no_cast_forward_inputs");
  policy.comm_path = read_comm_path(options.comm_path);
  policy.prefetch = read_prefetch(options.prefetch);
  return policy;
}

// One line for each option, so that a disagreement is told by its name.
std::string text_of(const fsdp2_shard_options& options) {
  return fmt::format(
      "reshard_after_forward={}\nparam_dtype={}\nreduce_dtype={}\noutput_dtype={}\n"
      "no_cast_forward_inputs={}\ncpu_offload={}\nwrap={}\ncomm_path={}\nprefetch={}\n",
      options.reshard_after_forward, options.param_dtype, options.reduce_dtype,
      options.output_dtype, options.no_cast_forward_inputs, options.cpu_offload, options.wrap,
      options.comm_path, options.prefetch);
}

std::string text_of(const models::CausalLM& module) {
  std::string text = fmt::format("model={}\n", module.kind());
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    text += fmt::format("{}={} {}\n", parameter.names.front(),
                        c10::toString(parameter.tensor.scalar_type()),
                        fmt::join(parameter.tensor.sizes(), "x"));
  }
  return text;
}

std::shared_ptr<fsdp::Unit> shard_module(const std::shared_ptr<models::CausalLM>& module,
                                         const std::shared_ptr<Mesh>& mesh, int32_t wrap,
                                         const fsdp::Policy& policy) {
  if (wrap == FSDP2_WRAP_NONE) {
    return fsdp::fully_shard(module, mesh, policy);
  }
  return fsdp::fully_shard_by_kind(module, mesh, policy, module->no_split_kinds());
}

}  // namespace

uint64_t create_shard(Call& call, fsdp2_module module, fsdp2_mesh mesh,
                      const fsdp2_shard_options* given, const fsdp2_shard* out) {
  const auto mesh_object = pin(mesh);
  enter(call, *mesh_object);
  std::shared_ptr<ModuleObject> object;
  fsdp2_shard_options options{};
  fsdp::Policy policy;
  agree(mesh_object->mesh->world(), "fsdp2_shard_create", [&] {
    object = pin(module);
    call.occupy(object->busy);
    check_not_null(out, "out");
    check_usable(*object);
    const Mesh& mesh = *mesh_object->mesh;
    FSDP2_CHECK(mesh.ndim() <= 2, Code::kInvalidArgument,
                "mesh: expected 1 dim (shard) or 2 (replicate, shard), found {}", mesh.to_string());
    FSDP2_CHECK(object->mesh == nullptr, Code::kWrongState,
                "module: expected one that is not sharded yet, found one that is");
    options = read_struct(given, kDefaults, "options");
    policy = read_policy(options);
    check_integer(options.wrap, FSDP2_WRAP_DEFAULT, FSDP2_WRAP_NONE, "options.wrap");
    return text_of(options) + text_of(*object->module);
  });
  // What follows changes the module; a failure leaves it as none that could be used.
  object->spoiled = true;
  auto shard = std::make_shared<ShardObject>();
  shard->module = object;
  agree(mesh_object->mesh->world(), "fsdp2_shard_create", [&] {
    shard->root = shard_module(object->module, mesh_object->mesh, options.wrap, policy);
    return std::string();
  });
  shard->root->tree();
  if (object->source) {
    fsdp::load_parameters(*shard->root, *object->source);
    object->source = nullptr;
  }
  shard->counters_at_reset = shard->root->comm_counters();
  object->mesh = mesh_object;
  object->spoiled = false;
  log(LogLevel::kInfo, "fsdp", "sharded {} over {}", object->module->kind(),
      mesh_object->mesh->to_string());
  return give(Kind::kShard, std::move(shard));
}

}  // namespace fsdp2::capi
