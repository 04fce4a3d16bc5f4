// Checkpoints without a mesh: found, looked at, verified, converted.
#include <limits>
#include <string>

#include "capi/argument.h"
#include "capi/nouns/checkpoint_options.h"
#include "capi/guard.h"
#include "capi/sized_struct.h"
#include "core/ckpt/formats/convert.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/inspect.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "core/ckpt/state/state_source.h"
#include "include/fsdp2/checkpoint.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_convert_options kConvertDefaults = FSDP2_CONVERT_OPTIONS_INIT;
constexpr int32_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxStep = int64_t{1} << 58;

ckpt::ConvertOptions convert_options(const fsdp2_convert_options* given) {
  const fsdp2_convert_options options =
      read_struct(check_not_null(given, "options"), kConvertDefaults, "options");
  ckpt::ConvertOptions out;
  out.format = read_format(options.format);
  out.model_only = read_flag(options.model_only, "options.model_only");
  out.ranks = static_cast<int>(check_integer(options.ranks, 0, kMaxRanks, "options.ranks"));
  out.ranks = out.ranks == 0 ? 1 : out.ranks;
  out.step = check_integer(options.step, 0, kMaxStep, "options.step");
  out.max_file_bytes = read_file_bytes(options.max_file_bytes);
  if (options.config_path != nullptr) {
    out.config_path = read_path(options.config_path, "options.config_path");
  }
  return out;
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;
namespace ckpt = fsdp2::ckpt;

fsdp2_status fsdp2_convert_options_init(fsdp2_convert_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kConvertDefaults, "options");
  });
}

fsdp2_status fsdp2_checkpoint_find(const char* path, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    const std::string found = ckpt::find_checkpoint(capi::read_path(path, "path"));
    ckpt::detect_format(found);  // kNotFound, or what else stands there
    capi::write_text(found, buf, cap, needed);
  });
}

fsdp2_status fsdp2_checkpoint_inspect(const char* path, char* buf, size_t cap, size_t* needed) {
  return guard(__func__, [&](Call&) {
    capi::write_text(ckpt::inspect_checkpoint(capi::read_path(path, "path")), buf, cap, needed);
  });
}

fsdp2_status fsdp2_checkpoint_verify(const char* path) {
  return guard(__func__, [&](Call&) { ckpt::verify_checkpoint(capi::read_path(path, "path")); });
}

fsdp2_status fsdp2_checkpoint_rebuild_manifest(const char* path) {
  return guard(__func__, [&](Call&) { ckpt::rebuild_manifest(capi::read_path(path, "path")); });
}

fsdp2_status fsdp2_checkpoint_convert(const char* from, const char* to,
                                      const fsdp2_convert_options* options) {
  return guard(__func__, [&](Call&) {
    const std::string source = capi::read_path(from, "from");
    const std::string target = capi::read_path(to, "to");
    ckpt::convert_checkpoint(source, target, capi::convert_options(options));
  });
}
