#include "capi/error.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "capi/sized_struct.h"

namespace fsdp2::capi {

namespace {

// Its own memory, because a thread's other objects may still call the library when they go after
// it.
alignas(ErrorRecord) thread_local std::byte record_memory[sizeof(ErrorRecord)];
thread_local ErrorRecord* record_of_thread = nullptr;

// Frees the record's texts with the thread.
class RecordEnd {
 public:
  RecordEnd() = default;
  ~RecordEnd() {
    ErrorRecord empty;
    std::swap(*record_of_thread, empty);
  }
  RecordEnd(const RecordEnd&) = delete;
  RecordEnd& operator=(const RecordEnd&) = delete;
};

// That of the innermost KeepErrorRecord of this thread; null outside of any.
thread_local ErrorRecord* record_meanwhile = nullptr;

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

// These calls are about the record, so their own failures make none.
fsdp2_status check_record_out(const fsdp2_error_info* out) {
  if (out == nullptr) {
    return FSDP2_E_NULL_ARGUMENT;
  }
  const bool fits =
      out->struct_size >= kFirstSize<fsdp2_error_info> && out->struct_size <= kMaxStructSize;
  return fits ? FSDP2_OK : FSDP2_E_STRUCT_SIZE;
}

void fill_record(fsdp2_error_info* out, const ErrorRecord& record, const char* message,
                 const char* function, const char* detail) {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  info.status = record.status;
  info.rank = record.rank;
  info.native_code = record.native_code;
  info.message = message;
  info.function = function;
  info.detail = detail;
  fill_struct(out, info);
}

// Copies the text with its NUL to *end, which then is behind it.
const char* put_text(std::string_view text, char** end) {
  char* begin = *end;
  *std::copy(text.begin(), text.end(), begin) = '\0';
  *end = begin + text.size() + 1;
  return begin;
}

fsdp2_status take_record(fsdp2_error_info* out, char* buf, size_t cap, size_t* needed) {
  if (needed == nullptr || (buf == nullptr && cap > 0)) {
    return FSDP2_E_NULL_ARGUMENT;
  }
  ErrorRecord& record = error_record();
  const std::string_view function = record.function;
  *needed = record.message.size() + function.size() + record.detail.size() + 3;
  if (buf == nullptr) {
    return FSDP2_OK;
  }
  if (cap < *needed) {
    return FSDP2_E_BUFFER_TOO_SMALL;
  }
  const char* message = put_text(record.message, &buf);
  const char* name = put_text(function, &buf);
  const char* detail = put_text(record.detail, &buf);
  fill_record(out, record, message, name, detail);
  record = ErrorRecord();
  return FSDP2_OK;
}

}  // namespace

ErrorRecord& error_record() {
  if (record_meanwhile != nullptr) {
    return *record_meanwhile;
  }
  if (record_of_thread == nullptr) {
    record_of_thread = new (record_memory) ErrorRecord;
    thread_local const RecordEnd end;
    static_cast<void>(end);
  }
  return *record_of_thread;
}

KeepErrorRecord::KeepErrorRecord() noexcept
    : before_(std::exchange(record_meanwhile, &meanwhile_)) {}

KeepErrorRecord::~KeepErrorRecord() { record_meanwhile = before_; }

bool is_failing_status(fsdp2_status status) {
  return status != FSDP2_OK &&
         std::any_of(std::begin(kStatusNames), std::end(kStatusNames),
                     [&](const StatusName& entry) { return entry.status == status; });
}

}  // namespace fsdp2::capi

using fsdp2::capi::error_record;

fsdp2_status fsdp2_error_last(fsdp2_error_info* out) {
  const fsdp2_status status = fsdp2::capi::check_record_out(out);
  if (status == FSDP2_OK) {
    const auto& record = error_record();
    fsdp2::capi::fill_record(out, record, record.message.c_str(), record.function,
                             record.detail.c_str());
  }
  return status;
}

fsdp2_status fsdp2_error_take(fsdp2_error_info* out, char* buf, size_t cap, size_t* needed) {
  const fsdp2_status status = fsdp2::capi::check_record_out(out);
  return status == FSDP2_OK ? fsdp2::capi::take_record(out, buf, cap, needed) : status;
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
