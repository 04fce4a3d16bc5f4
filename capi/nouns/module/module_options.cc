#include "capi/nouns/module/module_options.h"

#include <tuple>

#include "capi/fields.h"
#include "core/base/error.h"

namespace fsdp2::capi {

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_module_options> = std::tuple(
    Field("dtype", &fsdp2_module_options::dtype, FloatDtypeOrKeep()),
    Field("seed", &fsdp2_module_options::seed, Anything()),
    Field("config_overrides", &fsdp2_module_options::config_overrides, Elsewhere()),
    Field("plain_operators", &fsdp2_module_options::plain_operators, Flag()),
    Field("reserved", &fsdp2_module_options::reserved, Reserved()));
// clang-format on

fsdp2_module_options read_module_options(const fsdp2_module_options* given) {
  return read_options(given, kModuleDefaults);
}

fsdp2_module_options read_options_without_program(const fsdp2_module_options* given) {
  const fsdp2_module_options options = read_module_options(given);
  FSDP2_CHECK(options.plain_operators == 0, Code::kInvalidArgument,
              "options.plain_operators: this module is not an exported program, so it has no "
              "operators that others could replace: expected 0");
  return options;
}

}  // namespace fsdp2::capi
