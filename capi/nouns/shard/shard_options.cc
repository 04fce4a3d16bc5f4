#include "capi/nouns/shard/shard_options.h"

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "capi/argument.h"
#include "capi/callback.h"
#include "capi/dtype.h"
#include "capi/fields.h"

namespace fsdp2::capi {

namespace {

constexpr int32_t kMaxPrefetch = 1024;
constexpr int32_t kMaxModulesPerUnit = 1 << 20;

fsdp::CommPath read_comm_path(int32_t value) {
  return read_enum<fsdp::CommPath>(
      value,
      {{FSDP2_COMM_PATH_AUTO, fsdp::CommPath::kAuto},
       {FSDP2_COMM_PATH_DIRECT, fsdp::CommPath::kDirect},
       {FSDP2_COMM_PATH_PACKED, fsdp::CommPath::kPacked}},
      "options.comm_path: expected FSDP2_COMM_PATH_AUTO (0), _DIRECT (1) or _PACKED (2)");
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_shard_options> = std::tuple(
    Field("reshard_after_forward", &fsdp2_shard_options::reshard_after_forward, Range{-1, std::numeric_limits<int32_t>::max()}),
    Field("param_dtype", &fsdp2_shard_options::param_dtype, FloatDtypeOrKeep()),
    Field("reduce_dtype", &fsdp2_shard_options::reduce_dtype, FloatDtypeOrKeep()),
    Field("output_dtype", &fsdp2_shard_options::output_dtype, FloatDtypeOrKeep()),
    Field("no_cast_forward_inputs", &fsdp2_shard_options::no_cast_forward_inputs, Flag()),
    Field("cpu_offload", &fsdp2_shard_options::cpu_offload, Flag()),
    Field("no_pin_memory", &fsdp2_shard_options::no_pin_memory, Flag()),
    Field("wrap", &fsdp2_shard_options::wrap, Range{FSDP2_WRAP_DEFAULT, FSDP2_WRAP_KINDS}),
    Field("comm_path", &fsdp2_shard_options::comm_path, ReadBy<read_comm_path>()),
    Field("prefetch", &fsdp2_shard_options::prefetch, Range{-1, kMaxPrefetch}),
    Field("comm_schedule", &fsdp2_shard_options::comm_schedule, Range{FSDP2_COMM_SCHEDULE_AGREED, FSDP2_COMM_SCHEDULE_ON_USE}),
    Field("load_from_rank0", &fsdp2_shard_options::load_from_rank0, Flag()),
    Field("modules_per_unit", &fsdp2_shard_options::modules_per_unit, Range{0, kMaxModulesPerUnit}),
    Field("wrap_embeddings", &fsdp2_shard_options::wrap_embeddings, Flag()),
    Field("wrap_head", &fsdp2_shard_options::wrap_head, Flag()),
    Field("defer_values", &fsdp2_shard_options::defer_values, Flag()),
    Field("keep_buffers", &fsdp2_shard_options::keep_buffers, Flag()),
    Field("wrap_min_numel", &fsdp2_shard_options::wrap_min_numel, Range{0, std::numeric_limits<int64_t>::max()}),
    Field("wrap_kinds", &fsdp2_shard_options::wrap_kinds, Elsewhere()),
    Field("n_wrap_kinds", &fsdp2_shard_options::n_wrap_kinds, Elsewhere()),
    Field("wrap_names", &fsdp2_shard_options::wrap_names, Elsewhere()),
    Field("n_wrap_names", &fsdp2_shard_options::n_wrap_names, Elsewhere()),
    Field("ignored_names", &fsdp2_shard_options::ignored_names, Elsewhere()),
    Field("n_ignored_names", &fsdp2_shard_options::n_ignored_names, Elsewhere()),
    Field("shard_dim", &fsdp2_shard_options::shard_dim, Elsewhere()),
    Field("shard_dim_user_data", &fsdp2_shard_options::shard_dim_user_data, Elsewhere()),
    Field("one_communicator", &fsdp2_shard_options::one_communicator, Flag()),
    Field("reserved", &fsdp2_shard_options::reserved, Reserved()));
// clang-format on

namespace {

void read_reshard(int32_t value, fsdp::Policy& policy) {
  switch (value) {
    case FSDP2_RESHARD_AUTO:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kAuto;
      break;
    case FSDP2_RESHARD_ALWAYS:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kAlways;
      break;
    case FSDP2_RESHARD_NEVER:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kNever;
      break;
    default:
      policy.reshard_after_forward = fsdp::ReshardAfterForward::kSmaller;
      policy.reshard_world = value;
  }
}

fsdp2_shard_dim_info shard_dim_info(const std::string& name, const at::Tensor& parameter) {
  FSDP2_CHECK(parameter.dim() <= FSDP2_MAX_DIMS, Code::kUnsupported, "{}: {} dims are more than {}",
              name, parameter.dim(), FSDP2_MAX_DIMS);
  fsdp2_shard_dim_info info{};
  info.struct_size = sizeof(info);
  info.dtype = dtype_number(parameter.scalar_type());
  info.n_dims = static_cast<int32_t>(parameter.dim());
  std::copy_n(parameter.sizes().begin(), parameter.dim(), info.shape);
  info.parameter = name.c_str();
  return info;
}

std::function<int(const std::string& name, const at::Tensor& parameter)> read_shard_dim(
    const fsdp2_shard_options& options) {
  FSDP2_CHECK(options.shard_dim != nullptr || options.shard_dim_user_data == nullptr,
              Code::kNullArgument, "options.shard_dim is NULL, but shard_dim_user_data is not");
  if (options.shard_dim == nullptr) {
    return nullptr;
  }
  return [ask = options.shard_dim, data = options.shard_dim_user_data](
             const std::string& name, const at::Tensor& parameter) {
    const fsdp2_shard_dim_info info = shard_dim_info(name, parameter);
    int32_t dim = 0;
    call_back("shard_dim of parameter " + name, [&] { return ask(&info, &dim, data); });
    return dim;
  };
}

fsdp::Policy read_policy(const fsdp2_shard_options& options) {
  fsdp::Policy policy;
  read_reshard(options.reshard_after_forward, policy);
  auto& mixed = policy.mixed_precision;
  mixed.param_dtype = read_float_dtype_or_keep(options.param_dtype, "options.param_dtype");
  mixed.reduce_dtype = read_float_dtype_or_keep(options.reduce_dtype, "options.reduce_dtype");
  mixed.output_dtype = read_float_dtype_or_keep(options.output_dtype, "options.output_dtype");
  mixed.cast_forward_inputs = options.no_cast_forward_inputs == 0;
  policy.offload.to_cpu = options.cpu_offload != 0;
  policy.offload.pin_memory = options.no_pin_memory == 0;
  policy.comm_path = read_comm_path(options.comm_path);
  policy.schedule = options.comm_schedule == FSDP2_COMM_SCHEDULE_AGREED ? fsdp::Schedule::kAgreed
                                                                        : fsdp::Schedule::kOnUse;
  policy.prefetch = options.prefetch == 0 ? 1 : std::max(options.prefetch, 0);
  policy.one_communicator = options.one_communicator != 0;
  policy.keep_buffers = options.keep_buffers != 0;
  policy.shard_dim = read_shard_dim(options);
  return policy;
}

std::optional<std::vector<std::string>> read_kinds(const fsdp2_shard_options& options) {
  std::vector<std::string> kinds =
      read_texts(options.wrap_kinds, options.n_wrap_kinds, kMaxName, "options.wrap_kinds");
  FSDP2_CHECK(kinds.empty() == (options.wrap != FSDP2_WRAP_KINDS), Code::kInvalidArgument,
              "options.wrap_kinds: expected class names with FSDP2_WRAP_KINDS (2) and none without "
              "it, found {} with {}",
              kinds.size(), options.wrap);
  return options.wrap == FSDP2_WRAP_DEFAULT ? std::nullopt : std::optional(std::move(kinds));
}

}  // namespace

void read_shard_options(const fsdp2_shard_options* given, train::ShardRequest& request) {
  const fsdp2_shard_options options = read_options(given, kShardDefaults);
  train::ShardOptions& out = request.options;
  out.policy = read_policy(options);
  out.ignored_names =
      read_texts(options.ignored_names, options.n_ignored_names, kMaxName, "options.ignored_names");
  out.wrap_kinds = read_kinds(options);
  out.wrap_names =
      read_texts(options.wrap_names, options.n_wrap_names, kMaxName, "options.wrap_names");
  out.wrap_head = options.wrap_head != 0;
  out.wrap_embeddings = options.wrap_embeddings != 0;
  out.modules_per_unit = std::max(1, options.modules_per_unit);
  out.wrap_min_numel = options.wrap_min_numel;
  out.load_from =
      options.load_from_rank0 != 0 ? fsdp::LoadFrom::kRankZero : fsdp::LoadFrom::kEveryRank;
  out.defer_values = options.defer_values != 0;
  request.text = text_of(options);
}

void read_wrap_options(const fsdp2_shard_options* given, train::ShardRequest& request) {
  const fsdp2_shard_options options = read_struct(given, kShardDefaults, "options");
  FSDP2_CHECK(options.load_from_rank0 == 0 && options.defer_values == 0, Code::kInvalidArgument,
              "options: load_from_rank0 and defer_values are for fsdp2_shard_create: expected them "
              "at their defaults");
  read_shard_options(&options, request);
}

void read_unit_options(const fsdp2_shard_options* given, train::ShardRequest& request) {
  const fsdp2_shard_options options = read_struct(given, kShardDefaults, "options");
  FSDP2_CHECK(
      options.wrap == FSDP2_WRAP_DEFAULT && options.modules_per_unit == 0 &&
          options.wrap_embeddings == 0 && options.wrap_head == 0 && options.wrap_min_numel == 0 &&
          options.n_wrap_kinds == 0 && options.n_wrap_names == 0,
      Code::kInvalidArgument,
      "options: the wrap fields are for fsdp2_shard_create and fsdp2_shard_make_units: expected "
      "them at their defaults");
  read_wrap_options(&options, request);
}

}  // namespace fsdp2::capi
