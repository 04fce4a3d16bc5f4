#include "core/train/checkpointer.h"

#include <fmt/format.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/formats/replaced_file.h"
#include "core/ckpt/ranks/broadcast_source.h"
#include "core/ckpt/ranks/full_state_dict.h"
#include "core/ckpt/state/memory_source.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "core/ckpt/store/pending_directory.h"
#include "core/ckpt/store/series_claim.h"
#include "core/ckpt/store/steady_path.h"
#include "core/comm/agreement.h"
#include "core/fsdp/parameter_values.h"
#include "core/train/state/finite_values.h"
#include "core/train/step/half_update.h"

namespace fsdp2::train {

namespace {

using ckpt::CheckpointFormat;

constexpr char kInMemory[] = "a state in memory";

std::string text_of(const TrainingObjects& objects) {
  return fmt::format("optimizer={}\nstep={}\nloader={}\n", objects.optimizer != nullptr,
                     objects.step != nullptr, objects.loader != nullptr);
}

// Shards whose values come later have memory already, with nothing in it that is worth a file.
constexpr const char* kSave = "a save";

void check_is_free(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    throw Error(Code::kIo, path + ": already exists, and is not to be overwritten", EEXIST);
  }
}

}  // namespace

void check(const SaveOptions& options) {
  const bool sharded = options.format == CheckpointFormat::kDcpDirectory;
  const bool per_rank = options.format == CheckpointFormat::kPthPerRankDirectory;
  FSDP2_CHECK(options.overwrite || !per_rank, Code::kUnsupported,
              "options.no_overwrite: files of each rank are written in place");
  FSDP2_CHECK(sharded || (!options.background && options.keep_last == 0), Code::kUnsupported,
              "options: only sharded checkpoints are saved in the background or kept by number");
  FSDP2_CHECK(!options.dtype || (!sharded && !per_rank), Code::kUnsupported,
              "options.dtype: only full weights are written in another dtype");
}

void check_replaceable(const std::string& path, const SaveOptions& options) {
  if (!options.overwrite) {
    check_is_free(path);
  }
  std::error_code error;
  const bool is_directory = std::filesystem::is_directory(path, error);
  switch (options.format) {
    case CheckpointFormat::kDcpDirectory:
      ckpt::check_series_is_free(path);
      [[fallthrough]];
    case CheckpointFormat::kHuggingFaceDirectory:
      ckpt::check_replaceable(path, ckpt::replaceable_by(options.format));
      break;
    case CheckpointFormat::kPthPerRankDirectory:
      FSDP2_CHECK(is_directory || !std::filesystem::exists(path, error), Code::kIo,
                  "{}: is a file, expected a directory or nothing", path);
      break;
    default:
      static_cast<void>(resolve_file(path));
      ckpt::check_may_replace_file(path);
  }
}

Checkpointer::Checkpointer(std::shared_ptr<fsdp::Unit> root)
    : root_(std::move(root)), saver_(root_->shared_mesh()) {}

TrainingObjects Checkpointer::with_root(TrainingObjects objects) const {
  objects.root = root_.get();
  return objects;
}

void Checkpointer::save(const std::string& what, const std::function<SaveRequest()>& read) {
  SaveRequest request;
  std::string config_json;
  agree(team(), what, [&] {
    request = read();
    request.objects = with_root(request.objects);
    check(request.options);
    fsdp::check_have_values(*root_, kSave);
    check_not_half_updated(*root_, request.objects.optimizer);
    if (request.options.format == CheckpointFormat::kHuggingFaceDirectory && request.config_json) {
      config_json = request.config_json();
    }
    if (!request.options.overwrite && team().rank() == 0) {
      check_is_free(request.path);
    }
    return text_of(request.objects) + request.text;
  });
  if (!request.options.allow_not_finite) {
    check_finite(request.objects);
  }
  write(request, config_json);
}

void Checkpointer::write(const SaveRequest& request, const std::string& config_json) {
  const SaveOptions& options = request.options;
  if (options.format == CheckpointFormat::kDcpDirectory) {
    const ckpt::StateDict state = state_to_save(request.objects);
    const ckpt::ShardedSaveOptions where{request.path, options.keep_last, options.overwrite};
    options.background ? saver_.start(state, where) : saver_.save(state, where);
    return;
  }
  wait();
  if (options.format == CheckpointFormat::kPthPerRankDirectory) {
    const TrainStep* step = request.objects.step;
    ckpt::save_per_rank(*root_, request.path, step != nullptr ? step->position() : 0);
    return;
  }
  ckpt::FullWriterOptions full;
  full.max_file_bytes = options.max_file_bytes;
  full.config_json = config_json;
  ckpt::save_full_state_dict(*root_, request.path, options.format, full, options.dtype);
}

void Checkpointer::load(const std::string& what, const std::function<LoadRequest()>& read) {
  LoadRequest request;
  agree(team(), what, [&] {
    request = read();
    return text_of(request.objects) + request.text;
  });
  wait();
  LoadReport report = request.from_rank0 ? load_from_rank_zero(request)
                                         : load_training_state(with_root(request.objects),
                                                               request.path, request.partial);
  loaded_ = Loaded{request.path, std::move(report)};
}

LoadReport Checkpointer::load_from_rank_zero(const LoadRequest& request) {
  const std::string of_rank_zero =  // paths may differ
      fmt::format("the checkpoint of rank {}", team().rank_in_job(0));
  std::unique_ptr<ckpt::StateSource> source;
  std::optional<ckpt::SteadyPath> steady;  // on rank 0
  agree(team(), fmt::format("loading {}", of_rank_zero), [&] {
    if (team().rank() == 0) {
      const std::string found = ckpt::find_checkpoint(request.path);
      steady.emplace(found);
      source = steady->explain([&] { return ckpt::open_checkpoint(found); });
    }
    return std::string();
  });
  LoadReport report = load_training_state(with_root(request.objects),
                                          ckpt::BroadcastSource(team(), source.get(), of_rank_zero),
                                          request.partial);
  agree(team(), fmt::format("loading {}", of_rank_zero), [&] {
    if (steady) {
      steady->check();
    }
    return std::string();
  });
  return report;
}

ckpt::StateDict Checkpointer::state(const std::string& what,
                                    const std::function<StateRequest()>& read) {
  ckpt::StateDict state;
  agree(team(), what, [&] {
    const StateRequest request = read();
    check_not_half_updated(*root_, request.objects.optimizer);
    state = state_to_save(with_root(request.objects), request.keys);
    state.check_has_memory();
    return text_of(request.objects) + request.text;
  });
  root_->scheduler().lend_shards();
  return state;
}

void Checkpointer::load_state(const std::string& what,
                              const std::function<LoadStateRequest()>& read) {
  LoadStateRequest request;
  std::optional<ckpt::MemorySource> own;
  agree(team(), what, [&] {
    request = read();
    if (request.state != nullptr) {
      own.emplace(*request.state);
    }
    return text_of(request.objects) + request.text;
  });
  const auto load_from = [&](const ckpt::StateSource& source) {
    return load_training_state(with_root(request.objects), source, request.partial);
  };
  LoadReport report = request.from_rank0
                          ? load_from(ckpt::BroadcastSource(team(), own ? &*own : nullptr))
                          : load_from(*own);
  loaded_ = Loaded{kInMemory, std::move(report)};
}

void Checkpointer::save_model(const std::string& what,
                              const std::function<SaveModelRequest()>& read) {
  SaveModelRequest request;
  agree(team(), what, [&] {
    request = read();
    fsdp::check_have_values(*root_, kSave);
    check_not_half_updated(*root_, nullptr);
    return std::string();
  });
  check_finite(with_root({}));
  wait();
  ckpt::FullWriterOptions options;
  options.config_json = request.config_json;
  ckpt::save_full_state_dict(*root_, request.path,
                             request.format.value_or(ckpt::full_format_of(request.path)), options);
}

void Checkpointer::load_model(const std::string& what,
                              const std::function<std::string()>& read_path) {
  std::string path;
  agree(team(), what, [&] {
    path = read_path();
    return std::string();
  });
  ckpt::load_full_state_dict(*root_, path);
  forget_half_update(*root_, nullptr);
}

void Checkpointer::reserve(TrainingObjects objects) {
  saver_.reserve(state_to_save(with_root(objects)));
}

}  // namespace fsdp2::train
