#include "include/fsdp2/state.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/checkpoint/state.h"
#include "capi/nouns/checkpoint/state_value.h"
#include "capi/nouns/module/tensor.h"
#include "capi/sized_struct.h"
#include "core/ckpt/ranks/gathered_state.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/ranks/state_load.h"
#include "core/comm/agreement.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_state_save_options kStateSaveDefaults = FSDP2_STATE_SAVE_OPTIONS_INIT;
constexpr int32_t kMaxWriters = 1024;

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_state_save_options> = std::tuple(
    Field("threads", &fsdp2_state_save_options::threads, Range{1, kMaxWriters}),
    Field("file_per_tensor", &fsdp2_state_save_options::file_per_tensor, Flag()),
    Field("no_overwrite", &fsdp2_state_save_options::no_overwrite, Flag()),
    Field("safetensors", &fsdp2_state_save_options::safetensors, Flag()),
    Field("reserved", &fsdp2_state_save_options::reserved, Reserved()));
// clang-format on

namespace {

// The calls that use it settle failures among the ranks.
void enter_agreeing(Call& call, const StateObject& state) {
  enter(call, state);
  call.occupy(state.mesh->busy);
}

std::string read_name(const char* name) {
  std::string text = read_text(name, kMaxName, "name");
  FSDP2_CHECK(!text.empty(), Code::kInvalidArgument, "name: expected a name, found \"\"");
  return text;
}

std::vector<int64_t> read_sizes(const int64_t* sizes, size_t n_dims, const char* name) {
  check_array(sizes, n_dims, name);
  return {sizes, sizes + n_dims};
}

void check_inside(const at::Tensor& chunk, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& offsets) {
  bool fits = chunk.dim() == static_cast<int64_t>(shape.size());
  for (size_t dim = 0; fits && dim < shape.size(); ++dim) {
    const int64_t size = chunk.size(static_cast<int64_t>(dim));
    fits = offsets[dim] >= 0 && size <= shape[dim] && offsets[dim] <= shape[dim] - size;
  }
  FSDP2_CHECK(fits, Code::kInvalidArgument, "chunk: expected one inside [{}], found [{}] at [{}]",
              fmt::join(shape, ", "), fmt::join(chunk.sizes(), ", "), fmt::join(offsets, ", "));
}

void add_tensor(StateObject& state, const char* name_text, const int64_t* shape,
                const int64_t* offsets, size_t n_dims, fsdp2_tensor chunk) {
  std::string name = read_name(name_text);
  const at::Tensor local = pin(chunk)->tensor.detach();
  check_has_values(local);
  if (shape == nullptr && offsets == nullptr) {
    state.state.add_whole({std::move(name)}, local);
    return;
  }
  FSDP2_CHECK(n_dims <= FSDP2_MAX_DIMS, Code::kInvalidArgument,
              "n_dims: expected at most {}, found {}", FSDP2_MAX_DIMS, n_dims);
  std::vector<int64_t> sizes = read_sizes(check_not_null(shape, "shape"), n_dims, "shape");
  std::vector<int64_t> at = read_sizes(check_not_null(offsets, "offsets"), n_dims, "offsets");
  check_inside(local, sizes, at);
  state.state.add_tensor({std::move(name)}, std::move(sizes), std::move(at), local);
}

fsdp2_state_info state_info(const ckpt::StateDict& state) {
  fsdp2_state_info info{};
  info.n_tensors = static_cast<int32_t>(state.tensors.size());
  info.n_values = static_cast<int32_t>(state.objects.size());
  for (const ckpt::StateTensor& tensor : state.tensors) {
    info.n_bytes += static_cast<int64_t>(tensor.local.nbytes());
  }
  return info;
}

const std::string& name_at(const ckpt::StateDict& state, size_t index) {
  const size_t count = state.tensors.size() + state.objects.size();
  FSDP2_CHECK(index < count, Code::kInvalidArgument, "index: expected one below {}, found {}",
              count, index);
  return index < state.tensors.size() ? state.tensors[index].name
                                      : state.objects[index - state.tensors.size()].name;
}

template <typename Entry>
const Entry& find_entry(const std::vector<Entry>& entries, const char* name_text,
                        const char* kind) {
  const std::string name = read_name(name_text);
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  FSDP2_CHECK(found != entries.end(), Code::kNotFound, "the state has no {} {}", kind, name);
  return *found;
}

ckpt::ShardedSaveOptions state_save_options(const fsdp2_state_save_options& options) {
  ckpt::ShardedSaveOptions out;
  out.overwrite = options.no_overwrite == 0;
  out.files.threads = options.threads;
  out.files.file_per_item = options.file_per_tensor != 0;
  if (options.safetensors != 0) {
    FSDP2_CHECK(out.files.threads == 1 && !out.files.file_per_item, Code::kUnsupported,
                "options: safetensors are written by one thread into one file a rank");
    out.format = ckpt::CheckpointFormat::kShardedSafetensors;
  }
  return out;
}

void save_state(Call& call, StateObject& state, const char* path,
                const fsdp2_state_save_options* given) {
  enter_agreeing(call, state);
  ckpt::ShardedSaveOptions options;
  agree(state.mesh->mesh->team(), call.function(), [&] {
    std::string where = read_path(path, "path");
    const fsdp2_state_save_options read = read_options(given, kStateSaveDefaults);
    options = state_save_options(read);
    options.path = std::move(where);
    return text_of(read);
  });
  ckpt::ShardedSaver(state.mesh->mesh).save(state.state, options);
}

void load_state(Call& call, StateObject& state, const char* path) {
  enter_agreeing(call, state);
  Team& team = state.mesh->mesh->team();
  std::string where;
  agree(team, call.function(), [&] {
    where = read_path(path, "path");
    return std::string();
  });
  ckpt::load_state(team, where, &state.state);
}

uint64_t gather_state(Call& call, StateObject& state, int32_t rank0_only, const fsdp2_state* out) {
  enter_agreeing(call, state);
  Team& team = state.mesh->mesh->team();
  ckpt::GatherTo to = ckpt::GatherTo::kEveryRank;
  agree(team, call.function(), [&] {
    check_not_null(out, "out");
    to = read_flag(rank0_only, "rank0_only") ? ckpt::GatherTo::kRankZero
                                             : ckpt::GatherTo::kEveryRank;
    return fmt::format("rank0_only={}\n", rank0_only);
  });
  auto gathered = std::make_shared<StateObject>();
  gathered->mesh = state.mesh;
  gathered->state = ckpt::gather_state(team, state.state, to);
  return give(Kind::kState, std::move(gathered));
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_state_create(fsdp2_mesh mesh, fsdp2_state* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    auto object = std::make_shared<capi::StateObject>();
    object->mesh = pin(mesh);
    out->id = capi::give(capi::Kind::kState, std::move(object));
  });
}

fsdp2_status fsdp2_state_destroy(fsdp2_state state) {
  return capi::destroy(__func__, capi::Kind::kState, state.id);
}

fsdp2_status fsdp2_state_duplicate(fsdp2_state state, fsdp2_state* out) {
  return capi::duplicate(__func__, capi::Kind::kState, state, out);
}

fsdp2_status fsdp2_state_add_tensor(fsdp2_state state, const char* name, const int64_t* shape,
                                    const int64_t* offsets, size_t n_dims, fsdp2_tensor chunk) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::enter(call, *object);
    capi::add_tensor(*object, name, shape, offsets, n_dims, chunk);
  });
}

fsdp2_status fsdp2_state_add_value(fsdp2_state state, const char* name, const char* json) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::enter(call, *object);
    std::string text = capi::read_name(name);
    object->state.add_object({std::move(text)},
                             capi::value_from_json(capi::read_text(json, capi::kMaxText, "json")));
  });
}

fsdp2_status fsdp2_state_get_info(fsdp2_state state, fsdp2_state_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::check_out_struct(out, "out");
    capi::enter(call, *object);
    capi::fill_struct(out, capi::state_info(object->state));
  });
}

fsdp2_status fsdp2_state_get_count(fsdp2_state state, size_t* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::check_not_null(out, "out");
    capi::enter(call, *object);
    *out = object->state.tensors.size() + object->state.objects.size();
  });
}

fsdp2_status fsdp2_state_get_name(fsdp2_state state, size_t index, char* buf, size_t cap,
                                  size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::enter(call, *object);
    capi::write_text(capi::name_at(object->state, index), buf, cap, needed);
  });
}

fsdp2_status fsdp2_state_get_tensor(fsdp2_state state, const char* name, fsdp2_tensor* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::check_not_null(out, "out");
    capi::enter(call, *object);
    *out = capi::give_tensor(capi::find_entry(object->state.tensors, name, "tensor").local);
  });
}

fsdp2_status fsdp2_state_get_value(fsdp2_state state, const char* name, char* buf, size_t cap,
                                   size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(state);
    capi::enter(call, *object);
    const auto& entry = capi::find_entry(object->state.objects, name, "value");
    capi::write_text(capi::value_to_json(entry.value), buf, cap, needed);
  });
}

fsdp2_status fsdp2_state_save_options_init(fsdp2_state_save_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kStateSaveDefaults, "options");
  });
}

fsdp2_status fsdp2_state_save(fsdp2_state state, const char* path,
                              const fsdp2_state_save_options* options) {
  return guard(__func__, [&](Call& call) { capi::save_state(call, *pin(state), path, options); });
}

fsdp2_status fsdp2_state_load(fsdp2_state state, const char* path) {
  return guard(__func__, [&](Call& call) { capi::load_state(call, *pin(state), path); });
}

fsdp2_status fsdp2_state_gather(fsdp2_state state, int32_t rank0_only, fsdp2_state* out) {
  return guard(__func__, [&](Call& call) {
    out->id = capi::gather_state(call, *pin(state), rank0_only, out);
  });
}
