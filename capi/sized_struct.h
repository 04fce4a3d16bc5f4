// Structs of the C ABI that begin with struct_size: a caller may be older (its struct is shorter)
// or newer (longer) than this library. Fields are only ever appended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "include/fsdp2/fsdp2.h"

namespace fsdp2::capi {

// What no struct of any version reaches: a larger size is a mistake, not a newer caller.
inline constexpr size_t kMaxStructSize = FSDP2_MAX_STRUCT_SIZE;

// The size that a struct had when it first appeared. It stays when fields are appended.
template <typename Struct>
inline constexpr size_t kFirstSize = 0;

// clang-format off
template <> inline constexpr size_t kFirstSize<fsdp2_error_info> = 8;  // of any use
template <> inline constexpr size_t kFirstSize<fsdp2_log_record> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_mesh_options> = 88;
template <> inline constexpr size_t kFirstSize<fsdp2_mesh_info> = 280;
template <> inline constexpr size_t kFirstSize<fsdp2_device_memory> = 56;
template <> inline constexpr size_t kFirstSize<fsdp2_group_info> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_tensor_info> = 288;
template <> inline constexpr size_t kFirstSize<fsdp2_module_options> = 16;
template <> inline constexpr size_t kFirstSize<fsdp2_module_info> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_module_parameter_info> = 160;
template <> inline constexpr size_t kFirstSize<fsdp2_infer_options> = 32;
template <> inline constexpr size_t kFirstSize<fsdp2_evaluation> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_generate_options> = 32;
template <> inline constexpr size_t kFirstSize<fsdp2_parameter_options> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_shard_options> = 144;
template <> inline constexpr size_t kFirstSize<fsdp2_parameter_info> = 312;
template <> inline constexpr size_t kFirstSize<fsdp2_unit_info> = 64;
template <> inline constexpr size_t kFirstSize<fsdp2_unit_settings> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_shard_stats> = 72;
template <> inline constexpr size_t kFirstSize<fsdp2_plan_options> = 16;
template <> inline constexpr size_t kFirstSize<fsdp2_plan_info> = 104;
template <> inline constexpr size_t kFirstSize<fsdp2_plan_memory> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_plan_reshard> = 32;
template <> inline constexpr size_t kFirstSize<fsdp2_adamw_options> = 48;
template <> inline constexpr size_t kFirstSize<fsdp2_sgd_options> = 32;
template <> inline constexpr size_t kFirstSize<fsdp2_muon_options> = 72;
template <> inline constexpr size_t kFirstSize<fsdp2_optimizer_info> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_optimizer_group_info> = 64;
template <> inline constexpr size_t kFirstSize<fsdp2_loader_options> = 56;
template <> inline constexpr size_t kFirstSize<fsdp2_loader_info> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_tokenizer_info> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_step_options> = 64;
template <> inline constexpr size_t kFirstSize<fsdp2_step_result> = 80;
template <> inline constexpr size_t kFirstSize<fsdp2_save_options> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_load_options> = 16;
template <> inline constexpr size_t kFirstSize<fsdp2_convert_options> = 40;
template <> inline constexpr size_t kFirstSize<fsdp2_state_info> = 24;
template <> inline constexpr size_t kFirstSize<fsdp2_state_save_options> = 24;
// clang-format on

inline void check_struct_size(size_t size, size_t first, const char* name) {
  FSDP2_CHECK(
      size >= first && size <= kMaxStructSize, Code::kStructSize,
      "{}: expected struct_size {} to {}, found {}: set it to the struct's sizeof (of options, "
      "FSDP2_..._INIT does)",
      name, first, kMaxStructSize, size);
}

// The caller's options as this version's struct: what an older caller lacks has its default. Null
// gives the defaults. `name` is for messages.
template <typename Struct>
Struct read_struct(const Struct* in, const Struct& defaults, const char* name) {
  static_assert(std::is_trivially_copyable_v<Struct>);
  static_assert(kFirstSize<Struct> > 0 && kFirstSize<Struct> <= sizeof(Struct));
  if (in == nullptr) {
    return defaults;
  }
  uint32_t size = 0;
  std::memcpy(&size, in, sizeof(size));
  check_struct_size(size, kFirstSize<Struct>, name);
  Struct out = defaults;
  std::memcpy(&out, in, std::min<size_t>(size, sizeof(Struct)));
  const auto* bytes = reinterpret_cast<const unsigned char*>(in);
  for (size_t i = sizeof(Struct); i < size; ++i) {
    FSDP2_CHECK(bytes[i] == 0, Code::kUnsupported,
                "{}: byte {} of {} is set, which this version of the library does not know "
                "(its struct has {} bytes)",
                name, i, size, sizeof(Struct));
  }
  out.struct_size = sizeof(Struct);
  return out;
}

// Before any work: an output struct that could not be filled is refused.
template <typename Struct>
void check_out_struct(const Struct* out, const char* name) {
  FSDP2_CHECK(out != nullptr, Code::kNullArgument, "{} is NULL", name);
  uint32_t size = 0;
  std::memcpy(&size, out, sizeof(size));
  check_struct_size(size, kFirstSize<Struct>, name);
}

// Fills what both sides know, and tells a newer caller by struct_size how much that is. REQUIRES:
// check_out_struct.
template <typename Struct>
void fill_struct(Struct* out, const Struct& value) {
  const auto filled = std::min(out->struct_size, static_cast<uint32_t>(sizeof(Struct)));
  std::memcpy(out, &value, filled);
  out->struct_size = filled;
}

// The _init functions: defaults for a struct of `size` bytes, at most that many written.
template <typename Struct>
void init_struct(Struct* out, size_t size, const Struct& defaults, const char* name) {
  FSDP2_CHECK(out != nullptr, Code::kNullArgument, "{} is NULL", name);
  check_struct_size(size, kFirstSize<Struct>, name);
  std::memset(static_cast<void*>(out), 0, size);
  std::memcpy(static_cast<void*>(out), &defaults, std::min(size, sizeof(Struct)));
  out->struct_size = static_cast<uint32_t>(size);
}

}  // namespace fsdp2::capi
