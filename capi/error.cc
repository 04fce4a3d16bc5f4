#include "capi/error.h"

#include <algorithm>
#include <iterator>

#include "capi/sized_struct.h"

namespace fsdp2::capi {

namespace {

struct StatusName {
  fsdp2_status status;
  const char* name;
};

constexpr StatusName kStatusNames[] = {
    {FSDP2_OK, "FSDP2_OK"},
    {FSDP2_E_NULL_ARGUMENT, "FSDP2_E_NULL_ARGUMENT"},
    {FSDP2_E_INVALID_HANDLE, "FSDP2_E_INVALID_HANDLE"},
    {FSDP2_E_STALE_HANDLE, "FSDP2_E_STALE_HANDLE"},
    {FSDP2_E_HANDLE_KIND, "FSDP2_E_HANDLE_KIND"},
    {FSDP2_E_STRUCT_SIZE, "FSDP2_E_STRUCT_SIZE"},
    {FSDP2_E_INVALID_ARGUMENT, "FSDP2_E_INVALID_ARGUMENT"},
    {FSDP2_E_BUFFER_TOO_SMALL, "FSDP2_E_BUFFER_TOO_SMALL"},
    {FSDP2_E_BUSY, "FSDP2_E_BUSY"},
    {FSDP2_E_WRONG_STATE, "FSDP2_E_WRONG_STATE"},
    {FSDP2_E_NOT_FOUND, "FSDP2_E_NOT_FOUND"},
    {FSDP2_E_UNSUPPORTED, "FSDP2_E_UNSUPPORTED"},
    {FSDP2_E_ABI_MISMATCH, "FSDP2_E_ABI_MISMATCH"},
    {FSDP2_E_IO, "FSDP2_E_IO"},
    {FSDP2_E_OUT_OF_MEMORY, "FSDP2_E_OUT_OF_MEMORY"},
    {FSDP2_E_DEVICE_MEMORY, "FSDP2_E_DEVICE_MEMORY"},
    {FSDP2_E_COMM, "FSDP2_E_COMM"},
    {FSDP2_E_TIMEOUT, "FSDP2_E_TIMEOUT"},
    {FSDP2_E_PEER_FAILED, "FSDP2_E_PEER_FAILED"},
    {FSDP2_E_DEVICE_LOST, "FSDP2_E_DEVICE_LOST"},
    {FSDP2_E_CALLBACK, "FSDP2_E_CALLBACK"},
    {FSDP2_E_CANCELLED, "FSDP2_E_CANCELLED"},
    {FSDP2_E_CORRUPT_DATA, "FSDP2_E_CORRUPT_DATA"},
    {FSDP2_E_NOT_FINITE, "FSDP2_E_NOT_FINITE"},
    {FSDP2_E_INTERNAL, "FSDP2_E_INTERNAL"},
};

constexpr const char* kClassNames[] = {
    "FSDP2_E_1XX", "FSDP2_E_2XX", "FSDP2_E_3XX", "FSDP2_E_4XX", "FSDP2_E_5XX",
    "FSDP2_E_6XX", "FSDP2_E_7XX", "FSDP2_E_8XX", "FSDP2_E_9XX",
};

}  // namespace

ErrorRecord& error_record() {
  thread_local ErrorRecord record;
  return record;
}

bool is_failing_status(fsdp2_status status) {
  return status != FSDP2_OK &&
         std::any_of(std::begin(kStatusNames), std::end(kStatusNames),
                     [&](const StatusName& entry) { return entry.status == status; });
}

}  // namespace fsdp2::capi

using fsdp2::capi::error_record;

void fsdp2_error_last(fsdp2_error_info* out) {
  if (out == nullptr || out->struct_size < fsdp2::capi::kFirstSize<fsdp2_error_info>) {
    return;
  }
  const auto& record = error_record();
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  info.status = record.status;
  info.rank = record.rank;
  info.native_code = record.native_code;
  info.message = record.message.c_str();
  info.function = record.function;
  info.detail = record.detail.c_str();
  fsdp2::capi::fill_struct(out, info);
}

const char* fsdp2_error_message(void) { return error_record().message.c_str(); }

const char* fsdp2_status_name(fsdp2_status status) {
  for (const auto& entry : fsdp2::capi::kStatusNames) {
    if (entry.status == status) {
      return entry.name;
    }
  }
  const int32_t index = status / 100 - 1;
  const bool known_class = status >= 100 && status <= 999;
  return known_class ? fsdp2::capi::kClassNames[index] : "FSDP2_E_UNKNOWN";
}
