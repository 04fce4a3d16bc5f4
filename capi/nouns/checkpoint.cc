#include "include/fsdp2/checkpoint.h"

#include <cerrno>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "capi/argument.h"
#include "capi/nouns/checkpoint_options.h"
#include "capi/dtype.h"
#include "capi/nouns/loader.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "capi/nouns/state.h"
#include "capi/nouns/step.h"
#include "core/ckpt/ranks/broadcast_source.h"
#include "core/ckpt/formats/checkpoint_format.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/safetensors/hugging_face_directory.h"
#include "core/ckpt/state/memory_source.h"
#include "core/ckpt/store/pending_directory.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/comm/agreement.h"
#include "core/train/state/training_state.h"

namespace fsdp2::capi {

// Of one shard.
struct CheckpointState {
  explicit CheckpointState(std::shared_ptr<Mesh> mesh) : saver(std::move(mesh)) {}

  ckpt::ShardedSaver saver;
  std::optional<std::string> report;
};

namespace {

constexpr fsdp2_save_options kSaveDefaults = FSDP2_SAVE_OPTIONS_INIT;
constexpr fsdp2_load_options kLoadDefaults = FSDP2_LOAD_OPTIONS_INIT;
constexpr int32_t kMaxRanks = 1 << 20;

CheckpointState& state_of(ShardObject& shard) {
  if (!shard.checkpoint) {
    shard.checkpoint = std::make_shared<CheckpointState>(shard.root->shared_mesh());
  }
  return *shard.checkpoint;
}

// What goes with a shard into a checkpoint or out of one.
struct Parts {
  std::shared_ptr<OptimizerObject> optimizer;
  std::shared_ptr<StepObject> step;
  std::shared_ptr<LoaderObject> loader;
  int64_t loader_steps = 0;

  train::TrainingObjects objects(ShardObject& shard, bool rng) {
    train::TrainingObjects out;
    out.root = shard.root.get();
    out.optimizer = optimizer ? optimizer->optimizer.get() : nullptr;
    out.step = step ? &step->step : nullptr;
    out.loader = loader ? &loader->loader : nullptr;
    out.loader_steps = &loader_steps;
    out.rng = rng;
    return out;
  }
};

Parts read_parts(Call& call, const ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
                 fsdp2_loader loader) {
  Parts parts;
  if (optimizer.id != 0) {
    parts.optimizer = pin(optimizer);
    FSDP2_CHECK(parts.optimizer->shard->root == shard.root, Code::kInvalidArgument,
                "optimizer: expected one of this shard, found one of another");
  }
  if (step.id != 0) {
    parts.step = pin(step);
    FSDP2_CHECK(parts.step->shard->root == shard.root, Code::kInvalidArgument,
                "step: expected one of this shard, found one of another");
  }
  if (loader.id != 0) {
    parts.loader = pin(loader);
    call.occupy(parts.loader->busy);
    parts.loader_steps =
        parts.loader->micro_batches / parts.loader->loader.options().accumulation_steps;
  }
  return parts;
}

std::string text_of(const Parts& parts) {
  return fmt::format("optimizer={}\nstep={}\nloader={}\n", parts.optimizer != nullptr,
                     parts.step != nullptr, parts.loader != nullptr);
}

struct SaveRequest {
  std::string path;
  ckpt::CheckpointFormat format = ckpt::CheckpointFormat::kDcpDirectory;
  fsdp2_save_options options{};
  std::optional<at::ScalarType> dtype;
  Parts parts;
};

void read_save_options(const fsdp2_save_options* given, SaveRequest* request) {
  const fsdp2_save_options options = read_struct(given, kSaveDefaults, "options");
  request->format = read_format(options.format);
  const bool sharded = options.format == FSDP2_CHECKPOINT_SHARDED;
  const bool background = read_flag(options.background, "options.background");
  read_flag(options.no_rng, "options.no_rng");
  check_reserved(options.reserved);
  const bool overwrite = !read_flag(options.no_overwrite, "options.no_overwrite");
  FSDP2_CHECK(overwrite || options.format != FSDP2_CHECKPOINT_PTH_PER_RANK, Code::kUnsupported,
              "options.no_overwrite: files of each rank are written in place");
  request->dtype = read_float_dtype_or_keep(options.dtype, "options.dtype");
  check_integer(options.keep_last, 0, kMaxRanks, "options.keep_last");
  read_file_bytes(options.max_file_bytes);
  FSDP2_CHECK(sharded || (!background && options.keep_last == 0), Code::kUnsupported,
              "options: only sharded checkpoints are saved in the background or kept by number");
  FSDP2_CHECK(!request->dtype || (!sharded && options.format != FSDP2_CHECKPOINT_PTH_PER_RANK),
              Code::kUnsupported, "options.dtype: only full weights are written in another dtype");
  request->options = options;
}

void check_is_free(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    throw Error(Code::kIo, path + ": already exists, and is not to be overwritten", EEXIST);
  }
}

// Whether a save may replace what is at `path`.
void check_path(const std::string& path, const SaveRequest& request) {
  using ckpt::CheckpointFormat;
  if (request.options.no_overwrite != 0) {
    check_is_free(path);
  }
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  switch (request.format) {
    case CheckpointFormat::kDcpDirectory:
    case CheckpointFormat::kHuggingFaceDirectory:
      ckpt::check_replaceable(path, ckpt::replaceable_by(request.format));
      break;
    case CheckpointFormat::kPthPerRankDirectory:
      FSDP2_CHECK(is_directory || !std::filesystem::exists(path, error), Code::kIo,
                  "{}: is a file, expected a directory or nothing", path);
      break;
    default:
      FSDP2_CHECK(!is_directory, Code::kIo, "{}: is a directory, expected a file or nothing", path);
  }
}

SaveRequest agree_on_save(Call& call, ShardObject& shard, fsdp2_optimizer optimizer,
                          fsdp2_step step, fsdp2_loader loader, const char* path,
                          const fsdp2_save_options* given) {
  enter_collective(call, *shard.module);
  SaveRequest request;
  agree(shard.root->mesh().world(), call.function(), [&] {
    request.path = read_path(path, "path");
    read_save_options(given, &request);
    request.parts = read_parts(call, shard, optimizer, step, loader);
    const fsdp2_save_options& options = request.options;
    if (options.no_overwrite != 0 && shard.root->mesh().world().rank() == 0) {
      check_is_free(request.path);
    }
    return text_of(request.parts) +
           fmt::format(
               "format={}\nbackground={}\nno_rng={}\nmax_file_bytes={}\ndtype={}\n"
               "no_overwrite={}\n",
               options.format, options.background, options.no_rng, options.max_file_bytes,
               options.dtype, options.no_overwrite);
  });
  return request;
}

void save(ShardObject& shard, SaveRequest& request) {
  using ckpt::CheckpointFormat;
  const fsdp2_save_options& options = request.options;
  if (request.format == CheckpointFormat::kDcpDirectory) {
    const ckpt::StateDict state =
        train::state_to_save(request.parts.objects(shard, options.no_rng == 0));
    ckpt::ShardedSaver& saver = state_of(shard).saver;
    const ckpt::ShardedSaveOptions where{request.path, options.keep_last,
                                         options.no_overwrite == 0};
    options.background != 0 ? saver.start(state, where) : saver.save(state, where);
    return;
  }
  if (request.format == CheckpointFormat::kPthPerRankDirectory) {
    const auto& step = request.parts.step;
    ckpt::save_per_rank(*shard.root, request.path, step ? step->step.position() : 0);
    return;
  }
  ckpt::FullWriterOptions full;
  full.max_file_bytes = read_file_bytes(options.max_file_bytes);
  if (request.format == CheckpointFormat::kHuggingFaceDirectory) {
    const std::string& config = shard.module->module->config_json();
    full.config_json = request.dtype ? ckpt::config_with_dtype(config, *request.dtype) : config;
  }
  ckpt::save_full_state_dict(*shard.root, request.path, request.format, full, request.dtype);
}

std::string report_json(const std::string& path, const train::LoadReport& report) {
  return nlohmann::ordered_json{{"path", path},
                                {"step", report.step},
                                {"missing", report.missing},
                                {"unexpected", report.unexpected}}
      .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

// What the run was brought back from, in the report.
void note_loaded(ShardObject& shard, Parts& parts, const std::string& where,
                 const train::LoadReport& report) {
  if (parts.loader) {
    parts.loader->micro_batches =
        parts.loader_steps * parts.loader->loader.options().accumulation_steps;
  }
  state_of(shard).report = report_json(where, report);
}

fsdp2_load_options read_load_options(const fsdp2_load_options* given) {
  const fsdp2_load_options options = read_struct(given, kLoadDefaults, "options");
  read_flag(options.partial, "options.partial");
  read_flag(options.no_rng, "options.no_rng");
  read_flag(options.from_rank0, "options.from_rank0");
  return options;
}

std::string text_of(const fsdp2_load_options& options) {
  return fmt::format("partial={}\nno_rng={}\nfrom_rank0={}\n", options.partial, options.no_rng,
                     options.from_rank0);
}

uint64_t get_state(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
                   fsdp2_loader loader, int32_t flat_keys, const fsdp2_state* out) {
  enter_collective(call, *shard.module);
  Parts parts;
  agree(shard.root->mesh().world(), call.function(), [&] {
    check_not_null(out, "out");
    read_flag(flat_keys, "flat_optimizer_keys");
    parts = read_parts(call, shard, optimizer, step, loader);
    return text_of(parts) + fmt::format("flat_optimizer_keys={}\n", flat_keys);
  });
  auto state = std::make_shared<StateObject>();
  state->mesh = shard.module->mesh;
  state->state = train::state_to_save(
      parts.objects(shard, /*rng=*/true),
      flat_keys != 0 ? train::OptimizerKeys::kByParameter : train::OptimizerKeys::kByGroup);
  return give(Kind::kState, std::move(state));
}

void set_state(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
               fsdp2_loader loader, fsdp2_state handle, const fsdp2_load_options* given) {
  enter_collective(call, *shard.module);
  World& world = shard.root->mesh().world();
  fsdp2_load_options options{};
  Parts parts;
  std::optional<ckpt::MemorySource> own;
  agree(world, call.function(), [&] {
    options = read_load_options(given);
    parts = read_parts(call, shard, optimizer, step, loader);
    if (options.from_rank0 == 0 || world.rank() == 0) {
      const auto state = pin(handle);
      call.occupy(state->busy);
      own.emplace(state->state);
    }
    return text_of(parts) + text_of(options);
  });
  const train::TrainingObjects objects = parts.objects(shard, options.no_rng == 0);
  const auto load_from = [&](const ckpt::StateSource& source) {
    return train::load_training_state(objects, source, options.partial != 0);
  };
  const train::LoadReport report =
      options.from_rank0 != 0 ? load_from(ckpt::BroadcastSource(world, own ? &*own : nullptr))
                              : load_from(*own);
  note_loaded(shard, parts, "a state in memory", report);
}

void load(Call& call, ShardObject& shard, fsdp2_optimizer optimizer, fsdp2_step step,
          fsdp2_loader loader, const char* path, const fsdp2_load_options* given) {
  enter_collective(call, *shard.module);
  std::string where;
  fsdp2_load_options options{};
  Parts parts;
  agree(shard.root->mesh().world(), call.function(), [&] {
    where = read_path(path, "path");
    options = read_load_options(given);
    FSDP2_CHECK(options.from_rank0 == 0, Code::kUnsupported,
                "options.from_rank0: files are read by every rank");
    parts = read_parts(call, shard, optimizer, step, loader);
    return text_of(parts) + text_of(options);
  });
  state_of(shard).saver.wait();  // what is being written may be what is to be read
  const train::LoadReport report = train::load_training_state(
      parts.objects(shard, options.no_rng == 0), where, options.partial != 0);
  note_loaded(shard, parts, where, report);
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::Code;
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
    capi::SaveRequest request =
        capi::agree_on_save(call, *object, optimizer, step, loader, path, options);
    capi::save(*object, request);
  });
}

fsdp2_status fsdp2_checkpoint_prepare(fsdp2_shard shard, fsdp2_optimizer optimizer, fsdp2_step step,
                                      fsdp2_loader loader) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    capi::Parts parts = capi::read_parts(call, *object, optimizer, step, loader);
    capi::state_of(*object).saver.reserve(
        fsdp2::train::state_to_save(parts.objects(*object, /*rng=*/true)));
  });
}

fsdp2_status fsdp2_checkpoint_wait(fsdp2_shard shard) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter_collective(call, *object->module);
    if (object->checkpoint) {
      object->checkpoint->saver.wait();
    }
  });
}

fsdp2_status fsdp2_checkpoint_check_path(const char* path, const fsdp2_save_options* options) {
  return guard(__func__, [&](Call&) {
    const std::string where = capi::read_path(path, "path");
    capi::SaveRequest request;
    capi::read_save_options(options, &request);
    capi::check_path(where, request);
  });
}

fsdp2_status fsdp2_checkpoint_poll(fsdp2_shard shard, int32_t* out_done) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::check_not_null(out_done, "out_done");
    capi::enter(call, *object->module);
    *out_done = !object->checkpoint || object->checkpoint->saver.poll() ? 1 : 0;
  });
}

fsdp2_status fsdp2_checkpoint_load(fsdp2_shard shard, fsdp2_optimizer optimizer, fsdp2_step step,
                                   fsdp2_loader loader, const char* path,
                                   const fsdp2_load_options* options) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::load(call, *object, optimizer, step, loader, path, options);
  });
}

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

fsdp2_status fsdp2_checkpoint_get_report(fsdp2_shard shard, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call& call) {
    const auto object = pin(shard);
    capi::enter(call, *object->module);
    FSDP2_CHECK(object->checkpoint && object->checkpoint->report, Code::kWrongState,
                "nothing has been loaded into this shard by fsdp2_checkpoint_load");
    capi::write_text(*object->checkpoint->report, buf, cap, needed);
  });
}
