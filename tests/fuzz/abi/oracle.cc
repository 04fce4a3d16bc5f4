#include "tests/fuzz/abi/oracle.h"

#include <cstring>

#include "tests/fuzz/abi/history.h"

namespace fsdp2::fuzz {

namespace {

[[noreturn]] void blame(const Call& call, fsdp2_status status, const std::string& what) {
  report(call.text + " = " + fsdp2_status_name(status) + ": " + what);
}

bool is_known_status(fsdp2_status status) {
  const std::string name = fsdp2_status_name(status);
  return name != "FSDP2_E_UNKNOWN" && name.substr(name.size() - 2) != "XX";
}

const abi_variable& parameter_of(const Call& call, const Output& output) {
  return call.function->parameters[output.parameter];
}

const abi_variable* parameter_behind(const Call& call, const Output& output) {
  const int next = output.parameter + 1;
  return next < call.function->n_parameters ? &call.function->parameters[next] : nullptr;
}

// How much room is needed is said although the call fails.
bool says_what_is_needed(const Call& call, const Output& output, fsdp2_status status) {
  return status == FSDP2_E_BUFFER_TOO_SMALL && output.parameter > 0 &&
         std::strcmp(call.function->parameters[output.parameter - 1].name, "cap") == 0;
}

// What a call may write; kRoom if its declaration does not say.
size_t extent(const Call& call, const Output& output) {
  const abi_variable& parameter = parameter_of(call, output);
  const abi_variable* behind = parameter_behind(call, output);
  const bool is_array = (behind != nullptr &&
                         (behind->role == ABI_NUMBER || std::strcmp(behind->name, "units") == 0)) ||
                        parameter.role == ABI_RESULT || parameter.role == ABI_OPTIONS ||
                        std::strcmp(parameter.name, "tokens") == 0;
  return is_array ? kRoom : std::max<size_t>(parameter.size, 1);
}

void check_outputs(const Call& call, fsdp2_status status) {
  for (const Output& output : call.outputs) {
    const bool may_write = status == FSDP2_OK || says_what_is_needed(call, output, status);
    const size_t from = may_write ? extent(call, output) : 0;
    if (std::memcmp(output.memory + from, output.before.data() + from, kRoom - from) != 0) {
      blame(call, status,
            std::string("has written to ") + parameter_of(call, output).name +
                (may_write ? " beyond its end" : ""));
    }
  }
}

void check_failure(const Call& call, fsdp2_status status) {
  const Record record = error_record();
  if (record.status != status || record.function != call.function->name) {
    blame(call, status,
          std::string("the record is of ") + record.function + ", " +
              fsdp2_status_name(record.status));
  }
  const bool may_be_empty = record.function == "fsdp2_callback_fail";  // the caller's own text
  if ((record.message.empty() && !may_be_empty) || record.message.find('\n') != std::string::npos) {
    blame(call, status, "the message is not one line: \"" + record.message + "\"");
  }
}

// The functions of error.h tell the record, and leave it as it is whether they fail or not.
bool tells_record(const Call& call) {
  return std::string(call.function->name).rfind("fsdp2_error_", 0) == 0;
}

bool is_equal(const Record& a, const Record& b) {
  return a.status == b.status && a.function == b.function && a.message == b.message;
}

// A success leaves the record as it is, but for one that takes it.
void check_record(const Call& call, fsdp2_status status, const Record& before) {
  const Record now = error_record();
  const bool is_taken = std::strcmp(call.function->name, "fsdp2_error_take") == 0 &&
                        status == FSDP2_OK && is_equal(now, {FSDP2_OK, "", ""});
  if (!is_taken && !is_equal(now, before)) {
    blame(call, status, "has touched the record: " + now.function + ": " + now.message);
  }
}

}  // namespace

Record error_record() {
  fsdp2_error_info info = FSDP2_ERROR_INFO_INIT;
  fsdp2_error_last(&info);
  return {info.status, info.function, info.message};
}

void check_call(const Call& call, fsdp2_status status, const Record& before) {
  if (!call.function->can_fail) {
    return;
  }
  if (!is_known_status(status) || status == FSDP2_E_INTERNAL) {
    blame(call, status, error_record().message);
  }
  if (status != FSDP2_OK && !tells_record(call)) {
    check_failure(call, status);
  } else if (!call.touched_record) {
    check_record(call, status, before);
  }
  check_outputs(call, status);
}

}  // namespace fsdp2::fuzz
