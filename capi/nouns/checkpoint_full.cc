// Checkpoints of a model alone, whole: one file, or a directory that transformers reads.
#include <string>

#include "capi/argument.h"
#include "capi/object.h"
#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/comm/agreement.h"
#include "include/fsdp2/checkpoint.h"

namespace fsdp2::capi {

namespace {

// A path that every rank could read; each may have its own.
std::string agree_on_path(Call& call, const ShardObject& shard, const char* path,
                          const char* name) {
  enter_collective(call, *shard.module);
  std::string text;
  agree(shard.root->mesh().world(), call.function(), [&] {
    text = read_path(path, name);
    return std::string();
  });
  return text;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::agree_on_path;
using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace ckpt = fsdp2::ckpt;

fsdp2_status fsdp2_checkpoint_save_full(fsdp2_shard shard, const char* path) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    const std::string file = agree_on_path(call, *object, path, "path");
    ckpt::save_full_state_dict(*object->root, file, ckpt::full_format_of(file), {});
  });
}

fsdp2_status fsdp2_checkpoint_load_full(fsdp2_shard shard, const char* path) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    ckpt::load_full_state_dict(*object->root, agree_on_path(call, *object, path, "path"));
  });
}

fsdp2_status fsdp2_checkpoint_save_pretrained(fsdp2_shard shard, const char* directory) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    const std::string path = agree_on_path(call, *object, directory, "directory");
    ckpt::FullWriterOptions options;
    options.config_json = object->module->module->config_json();
    ckpt::save_full_state_dict(*object->root, path, ckpt::CheckpointFormat::kHuggingFaceDirectory,
                               options);
  });
}
