#include "capi/nouns/checkpoint/checkpoint_options.h"

#include <limits>

#include "capi/argument.h"
#include "capi/fields.h"

namespace fsdp2::capi {

namespace {

constexpr int32_t kMaxFilesOrSteps = 1 << 20;
constexpr int64_t kMaxCheckpointStep = int64_t{1} << 58;
constexpr Range kFileBytes = {0, std::numeric_limits<int64_t>::max()};

ckpt::CheckpointFormat read_checkpoint_format(int32_t format) {
  return read_enum<ckpt::CheckpointFormat>(
      format,
      {{FSDP2_CHECKPOINT_SHARDED, ckpt::CheckpointFormat::kDcpDirectory},
       {FSDP2_CHECKPOINT_SAFETENSORS, ckpt::CheckpointFormat::kSafetensors},
       {FSDP2_CHECKPOINT_PTH, ckpt::CheckpointFormat::kPth},
       {FSDP2_CHECKPOINT_MODEL_DIRECTORY, ckpt::CheckpointFormat::kHuggingFaceDirectory},
       {FSDP2_CHECKPOINT_PTH_PER_RANK, ckpt::CheckpointFormat::kPthPerRankDirectory}},
      "options.format: expected FSDP2_CHECKPOINT_SHARDED (0) to _PTH_PER_RANK (4)");
}

int64_t file_bytes(int64_t bytes) {
  return bytes == 0 ? train::SaveOptions().max_file_bytes : bytes;
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_save_options> = std::tuple(
    Field("format", &fsdp2_save_options::format, ReadBy<read_checkpoint_format>()),
    Field("background", &fsdp2_save_options::background, Flag()),
    Field("no_rng", &fsdp2_save_options::no_rng, Flag()),
    Field("max_file_bytes", &fsdp2_save_options::max_file_bytes, kFileBytes),
    Field("dtype", &fsdp2_save_options::dtype, FloatDtypeOrKeep()),
    Field("no_overwrite", &fsdp2_save_options::no_overwrite, Flag()),
    Field("keep_last", &fsdp2_save_options::keep_last, Range{0, kMaxFilesOrSteps}),
    Field("allow_not_finite", &fsdp2_save_options::allow_not_finite, Flag()));

template <>
inline constexpr auto kFields<fsdp2_load_options> = std::tuple(
    Field("partial", &fsdp2_load_options::partial, Flag()),
    Field("no_rng", &fsdp2_load_options::no_rng, Flag()),
    Field("from_rank0", &fsdp2_load_options::from_rank0, Flag()));

template <>
inline constexpr auto kFields<fsdp2_convert_options> = std::tuple(
    Field("format", &fsdp2_convert_options::format, ReadBy<read_checkpoint_format>()),
    Field("model_only", &fsdp2_convert_options::model_only, Flag()),
    Field("ranks", &fsdp2_convert_options::ranks, Range{0, kMaxFilesOrSteps}),
    Field("step", &fsdp2_convert_options::step, Range{0, kMaxCheckpointStep}),
    Field("max_file_bytes", &fsdp2_convert_options::max_file_bytes, kFileBytes),
    Field("config_path", &fsdp2_convert_options::config_path, Elsewhere()));
// clang-format on

RunSaveOptions read_save_options(const fsdp2_save_options* given) {
  const fsdp2_save_options options = read_options(given, kSaveDefaults);
  RunSaveOptions out;
  out.options.format = read_checkpoint_format(options.format);
  out.options.overwrite = options.no_overwrite == 0;
  out.options.background = options.background != 0;
  out.options.allow_not_finite = options.allow_not_finite != 0;
  out.options.keep_last = options.keep_last;
  out.options.max_file_bytes = file_bytes(options.max_file_bytes);
  out.options.dtype = read_float_dtype_or_keep(options.dtype, "options.dtype");
  out.rng = options.no_rng == 0;
  out.text = text_of(options);
  return out;
}

RunLoadOptions read_load_options(const fsdp2_load_options* given) {
  const fsdp2_load_options options = read_options(given, kLoadDefaults);
  return {options.partial != 0, options.no_rng == 0, options.from_rank0 != 0, text_of(options)};
}

ckpt::ConvertOptions read_convert_options(const fsdp2_convert_options* given) {
  const fsdp2_convert_options options =
      read_options(check_not_null(given, "options"), kConvertDefaults);
  ckpt::ConvertOptions out;
  out.format = read_checkpoint_format(options.format);
  out.model_only = options.model_only != 0;
  out.ranks = options.ranks == 0 ? 1 : options.ranks;
  out.step = options.step;
  out.max_file_bytes = file_bytes(options.max_file_bytes);
  if (options.config_path != nullptr) {
    out.config_path = read_path(options.config_path, "options.config_path");
  }
  return out;
}

}  // namespace fsdp2::capi
