// Checkpoints of a run: saved, waited for, loaded.
#include "include/fsdp2/checkpoint.h"

#include <nlohmann/json.hpp>
#include <string>

#include "capi/argument.h"
#include "capi/nouns/checkpoint/checkpoint_options.h"
#include "capi/nouns/checkpoint/checkpoint_parts.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/models/configured_model.h"
#include "core/train/checkpointer.h"

namespace fsdp2::capi {

namespace {

void save_run(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
              fsdp2_loader loader, const char* path, const fsdp2_save_options* given) {
  enter_collective(call, *shard.module);
  CheckpointParts parts;
  shard.checkpointer->save(call.function(), [&] {
    train::SaveRequest request;
    request.path = read_path(path, "path");
    RunSaveOptions read = read_save_options(given);
    parts = read_parts(call, shard, optimizer, step, loader);
    request.options = read.options;
    request.objects = parts.objects(read.rng);
    request.config_json = [&] {
      return models::configured_model(*shard.module->module, "path").config_json();
    };
    request.text = std::move(read.text);
    return request;
  });
}

void load_run(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
              fsdp2_loader loader, const char* path, const fsdp2_load_options* given) {
  enter_collective(call, *shard.module);
  CheckpointParts parts;
  shard.checkpointer->load(call.function(), [&] {
    train::LoadRequest request;
    request.path = read_path(path, "path");
    RunLoadOptions read = read_load_options(given);
    request.from_rank0 = read.from_rank0;
    parts = read_parts(call, shard, optimizer, step, loader);
    request.objects = parts.objects(read.rng);
    request.partial = read.partial;
    request.text = std::move(read.text);
    return request;
  });
}

std::string report_json(const train::Checkpointer::Loaded& loaded) {
  return nlohmann::ordered_json{{"path", loaded.path},
                                {"step", loaded.report.step},
                                {"missing", loaded.report.missing},
                                {"unexpected", loaded.report.unexpected}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_save_options_init(fsdp2_save_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kSaveDefaults, "options");
  });
}

fsdp2_status fsdp2_load_options_init(fsdp2_load_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kLoadDefaults, "options");
  });
}

fsdp2_status fsdp2_checkpoint_save(fsdp2_shard shard, fsdp2_optimizer optimizer, fsdp2_step step,
                                   fsdp2_loader loader, const char* path,
                                   const fsdp2_save_options* options) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::save_run(call, *object, optimizer, step, loader, path, options);
  });
}

fsdp2_status fsdp2_checkpoint_prepare(fsdp2_shard shard, fsdp2_optimizer optimizer, fsdp2_step step,
                                      fsdp2_loader loader) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto parts = capi::read_parts(call, *object, optimizer, step, loader);
    object->checkpointer->reserve(parts.objects(/*rng=*/true));
  });
}

fsdp2_status fsdp2_checkpoint_wait(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    object->checkpointer->wait();
  });
}

fsdp2_status fsdp2_checkpoint_poll(fsdp2_shard shard, int32_t* out_done) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out_done, "out_done");
    capi::enter(call, *object->module);
    *out_done = object->checkpointer->poll() ? 1 : 0;
  });
}

fsdp2_status fsdp2_checkpoint_check_path(const char* path, const fsdp2_save_options* options) {
  return guard(__func__, [&](Call&) {
    const std::string where = capi::read_path(path, "path");
    const fsdp2::train::SaveOptions read = capi::read_save_options(options).options;
    fsdp2::train::check(read);
    fsdp2::train::check_replaceable(where, read);
  });
}

fsdp2_status fsdp2_checkpoint_load(fsdp2_shard shard, fsdp2_optimizer optimizer, fsdp2_step step,
                                   fsdp2_loader loader, const char* path,
                                   const fsdp2_load_options* options) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::load_run(call, *object, optimizer, step, loader, path, options);
  });
}

fsdp2_status fsdp2_checkpoint_get_report(fsdp2_shard shard, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    const auto& loaded = object->checkpointer->loaded();
    FSDP2_CHECK(loaded, fsdp2::Code::kWrongState,
                "nothing has been loaded into this shard by fsdp2_checkpoint_load");
    capi::write_text(capi::report_json(*loaded), buf, cap, needed);
  });
}
