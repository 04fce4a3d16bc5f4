// The state of a run in memory: what a checkpoint would hold.
#include <string>
#include <utility>

#include "capi/argument.h"
#include "capi/nouns/checkpoint/checkpoint_options.h"
#include "capi/nouns/checkpoint/checkpoint_parts.h"
#include "capi/nouns/checkpoint/state.h"
#include "capi/object.h"
#include "core/train/checkpointer.h"
#include "include/fsdp2/checkpoint.h"

namespace fsdp2::capi {

namespace {

uint64_t get_state(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
                   fsdp2_loader loader, int32_t flat_keys, const fsdp2_state* out) {
  enter_collective(call, *shard.module);
  CheckpointParts parts;
  auto state = std::make_shared<StateObject>();
  state->mesh = shard.module->mesh;
  state->state = shard.checkpointer->state(call.function(), [&] {
    train::StateRequest request;
    check_not_null(out, "out");
    request.keys = read_flag(flat_keys, "flat_optimizer_keys") ? train::OptimizerKeys::kByParameter
                                                               : train::OptimizerKeys::kByGroup;
    parts = read_parts(call, shard, optimizer, step, loader);
    request.objects = parts.objects(/*rng=*/true);
    request.text = fmt::format("flat_optimizer_keys={}\n", flat_keys);
    return request;
  });
  return give(Kind::kState, std::move(state));
}

void set_state(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
               fsdp2_loader loader, fsdp2_state handle, const fsdp2_load_options* given) {
  enter_collective(call, *shard.module);
  CheckpointParts parts;
  std::shared_ptr<StateObject> state;
  shard.checkpointer->load_state(call.function(), [&] {
    train::LoadStateRequest request;
    RunLoadOptions read = read_load_options(given);
    parts = read_parts(call, shard, optimizer, step, loader);
    if (!read.from_rank0 || shard.root->mesh().team().rank() == 0) {
      state = pin(handle);
      call.occupy(state->busy);
      request.state = &state->state;
    }
    request.from_rank0 = read.from_rank0;
    request.objects = parts.objects(read.rng);
    request.partial = read.partial;
    request.text = std::move(read.text);
    return request;
  });
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_checkpoint_get_state(fsdp2_shard shard, fsdp2_optimizer optimizer,
                                        fsdp2_step step, fsdp2_loader loader,
                                        int32_t flat_optimizer_keys, fsdp2_state* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    out->id = capi::get_state(call, *object, optimizer, step, loader, flat_optimizer_keys, out);
  });
}

fsdp2_status fsdp2_checkpoint_set_state(fsdp2_shard shard, fsdp2_optimizer optimizer,
                                        fsdp2_step step, fsdp2_loader loader, fsdp2_state state,
                                        const fsdp2_load_options* options) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::set_state(call, *object, optimizer, step, loader, state, options);
  });
}
