// The options of checkpoint.h's calls as the core takes them.
#pragma once

#include <string>

#include "core/ckpt/formats/convert.h"
#include "core/train/checkpointer.h"
#include "include/fsdp2/checkpoint.h"

namespace fsdp2::capi {

inline constexpr fsdp2_save_options kSaveDefaults = FSDP2_SAVE_OPTIONS_INIT;
inline constexpr fsdp2_load_options kLoadDefaults = FSDP2_LOAD_OPTIONS_INIT;
inline constexpr fsdp2_convert_options kConvertDefaults = FSDP2_CONVERT_OPTIONS_INIT;

struct RunSaveOptions {
  train::SaveOptions options;
  bool rng = true;
  std::string text;  // that must be equal on all ranks
};
RunSaveOptions read_save_options(const fsdp2_save_options* given);

struct RunLoadOptions {
  bool partial = false;
  bool rng = true;
  bool from_rank0 = false;
  std::string text;  // that must be equal on all ranks
};
RunLoadOptions read_load_options(const fsdp2_load_options* given);

ckpt::ConvertOptions read_convert_options(const fsdp2_convert_options* given);

}  // namespace fsdp2::capi
