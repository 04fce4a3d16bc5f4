// Checkpoints without a mesh: found, looked at, verified, converted.
#include <string>

#include "capi/argument.h"
#include "capi/guard.h"
#include "capi/nouns/checkpoint/checkpoint_options.h"
#include "capi/sized_struct.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/convert.h"
#include "core/ckpt/formats/inspect.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "include/fsdp2/checkpoint.h"

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
    ckpt::convert_checkpoint(source, target, capi::read_convert_options(options));
  });
}
