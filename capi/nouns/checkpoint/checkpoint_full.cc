// Checkpoints of a model alone, whole: one file, or a directory that transformers reads.
#include <string>

#include "capi/argument.h"
#include "capi/object.h"
#include "core/models/configured_model.h"
#include "core/train/checkpointer.h"
#include "include/fsdp2/checkpoint.h"

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;
namespace ckpt = fsdp2::ckpt;
namespace train = fsdp2::train;

fsdp2_status fsdp2_checkpoint_save_full(fsdp2_shard shard, const char* path) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    object->checkpointer->save_model(call.function(), [&] {
      return train::SaveModelRequest{capi::read_path(path, "path"), {}, {}};
    });
  });
}

fsdp2_status fsdp2_checkpoint_load_full(fsdp2_shard shard, const char* path) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    object->checkpointer->load_model(call.function(),
                                     [&] { return capi::read_path(path, "path"); });
  });
}

fsdp2_status fsdp2_checkpoint_save_pretrained(fsdp2_shard shard, const char* directory) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    object->checkpointer->save_model(call.function(), [&] {
      return train::SaveModelRequest{
          capi::read_path(directory, "directory"), ckpt::CheckpointFormat::kHuggingFaceDirectory,
          fsdp2::models::configured_model(*object->module->module, "directory").config_json()};
    });
  });
}
