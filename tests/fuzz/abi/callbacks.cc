// The caller's functions: most do what they are for, some fail, and some call the library again or
// destroy what it is using.
#include <cstring>

#include "tests/fuzz/abi/call.h"
#include "tests/fuzz/abi/fuzzer.h"
#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/abi/oracle.h"

namespace fsdp2::fuzz {

namespace {

// The n-th argument of that role; null if there are fewer.
const abi_argument* find(const abi_callback& callback, const abi_argument* arguments, abi_role role,
                         int n) {
  for (int i = 0; i < callback.n_parameters; ++i) {
    if (callback.parameters[i].role == role && n-- == 0) {
      return &arguments[i];
    }
  }
  return nullptr;
}

void release(void* user_data) {
  if (!came_back(user_data)) {
    report("user_data is released that was not lent");
  }
  ::operator delete(user_data);
  if (fsdp2_tensor_backward({0}) == FSDP2_OK) {  // leaves the record of the call around it alone
    report("a null tensor has a backward");
  }
}

// A sink must not call the library, and such a call leaves no record.
void take_log_record() {
  fsdp2_tensor_info info;
  info.struct_size = sizeof(info);
  Fuzzer* fuzzer = Fuzzer::current();
  if (fuzzer != nullptr && fuzzer->holdings().count() % 8 == 0 &&
      fsdp2_tensor_get_info({0}, &info) != FSDP2_E_BUSY) {
    report("a call inside a log function is not FSDP2_E_BUSY");
  }
}

// A new tensor with the values of another.
fsdp2_tensor copy_of(uint64_t from, fsdp2_status* status) {
  fsdp2_tensor_info info;
  fsdp2_tensor copy{};
  std::vector<unsigned char> bytes(kRoom);
  info.struct_size = sizeof(info);
  *status = fsdp2_tensor_get_info({from}, &info);
  if (*status == FSDP2_OK && static_cast<size_t>(info.n_bytes) <= kRoom) {
    *status = fsdp2_tensor_read({from}, bytes.data(), info.n_bytes);
  }
  if (*status == FSDP2_OK) {
    *status = fsdp2_tensor_from_buffer(bytes.data(), info.n_bytes, info.dtype, info.shape,
                                       static_cast<size_t>(info.n_dims), &copy);
  }
  return copy;
}

// Values of one tensor into another, of as many bytes.
fsdp2_status copy_to(uint64_t from, uint64_t to) {
  fsdp2_tensor_info info;
  std::vector<unsigned char> bytes(kRoom);
  info.struct_size = sizeof(info);
  fsdp2_status status = fsdp2_tensor_get_info({from}, &info);
  if (status == FSDP2_OK && static_cast<size_t>(info.n_bytes) <= kRoom) {
    status = fsdp2_tensor_read({from}, bytes.data(), info.n_bytes);
  }
  return status == FSDP2_OK ? fsdp2_tensor_write({to}, bytes.data(), info.n_bytes) : status;
}

// A tensor for the library to take: a copy of what came in, and sometimes what is none.
fsdp2_status give_tensor(Fuzzer& fuzzer, const abi_argument* chunk, void* out) {
  Random& random = fuzzer.random();
  Holdings& holdings = fuzzer.holdings();
  fsdp2_status status = FSDP2_OK;
  fsdp2_tensor given{};
  if (random.one_in(8)) {
    given.id = random.one_in(2) ? holdings.destroyed(random) : chunk->id;
  } else if (random.one_in(8)) {
    given.id = holdings.one_of("fsdp2_tensor", random);
    holdings.let_go("fsdp2_tensor", given.id);
  } else {
    given = copy_of(chunk->id, &status);
  }
  std::memcpy(out, &given, sizeof(given));
  return status;
}

// A forward: an operator on its first input, or that input handed on.
fsdp2_status run_forward(Fuzzer& fuzzer, const abi_argument* arguments) {
  const auto* inputs = static_cast<const fsdp2_tensor*>(arguments[1].pointer);
  fsdp2_value input{};
  fsdp2_value output{};
  size_t n = 1;
  if (arguments[2].as_size_t == 0) {
    return FSDP2_OK;  // without an output
  }
  input.kind = FSDP2_VALUE_TENSOR;
  input.tensor = inputs[0];
  output.tensor = inputs[0];
  const fsdp2_status status = fuzzer.random().one_in(4)
                                  ? FSDP2_OK
                                  : fsdp2_op_call("aten::sum", &input, 1, 0, {0}, &output, 1, &n);
  std::memcpy(arguments[3].pointer, &output.tensor, sizeof(output.tensor));
  std::memcpy(arguments[5].pointer, &n, sizeof(n));
  return status;
}

// A forward of fsdp2_function_call: a copy of its first input, or that input handed on; it saves
// what came in.
fsdp2_status run_function(Fuzzer& fuzzer, const abi_argument* arguments) {
  const auto* inputs = static_cast<const fsdp2_tensor*>(arguments[1].pointer);
  const size_t n = 1;
  if (arguments[2].as_size_t == 0) {
    return FSDP2_OK;  // without an output
  }
  fsdp2_status status = FSDP2_OK;
  const fsdp2_tensor output =
      fuzzer.random().one_in(4) ? inputs[0] : copy_of(inputs[0].id, &status);
  std::memcpy(arguments[3].pointer, &output, sizeof(output));
  std::memcpy(arguments[4].pointer, &inputs[0], sizeof(inputs[0]));
  std::memcpy(arguments[6].pointer, &n, sizeof(n));
  std::memcpy(arguments[7].pointer, &n, sizeof(n));
  return status;
}

// Its backward: the gradient handed on, or none.
fsdp2_status run_backward(Fuzzer& fuzzer, const abi_argument* arguments) {
  const auto* gradients = static_cast<const fsdp2_tensor*>(arguments[3].pointer);
  if (!fuzzer.random().one_in(4)) {
    std::memcpy(arguments[5].pointer, &gradients[0], sizeof(gradients[0]));
  }
  return FSDP2_OK;
}

// What the function is for, as far as its parameters tell.
fsdp2_status do_work(Fuzzer& fuzzer, const abi_callback& callback, const abi_argument* arguments) {
  if (std::strcmp(callback.name, "fsdp2_forward_fn") == 0) {
    return run_forward(fuzzer, arguments);
  }
  if (std::strcmp(callback.name, "fsdp2_function_forward_fn") == 0) {
    return run_function(fuzzer, arguments);
  }
  if (std::strcmp(callback.name, "fsdp2_function_backward_fn") == 0) {
    return run_backward(fuzzer, arguments);
  }
  const abi_argument* first = find(callback, arguments, ABI_HANDLE, 0);
  const abi_argument* second = find(callback, arguments, ABI_HANDLE, 1);
  const abi_argument* out = find(callback, arguments, ABI_OUTPUT, 0);
  if (first != nullptr && out != nullptr) {
    return give_tensor(fuzzer, first, out->pointer);
  }
  if (first != nullptr && second != nullptr) {
    return copy_to(first->id, second->id);
  }
  if (out != nullptr) {
    static const std::vector<int32_t> kDims = {0, 0, 0, 1, -1, 7};
    const int32_t dim = fuzzer.random().of(kDims);
    std::memcpy(out->pointer, &dim, sizeof(dim));
  }
  return FSDP2_OK;
}

fsdp2_status fail(Random& random) {
  switch (random.below(3)) {
    case 0:
      return fsdp2_callback_fail(FSDP2_E_CANCELLED, "the fuzzer has had enough");
    case 1:
      return 12345;
    default:
      return FSDP2_E_INTERNAL;
  }
}

}  // namespace

}  // namespace fsdp2::fuzz

fsdp2_status abi_called_back(const abi_callback* callback, const abi_argument* arguments) {
  using namespace fsdp2::fuzz;
  if (std::strcmp(callback->name, "fsdp2_release_fn") == 0) {
    release(arguments[0].pointer);
    return FSDP2_OK;
  }
  Fuzzer* fuzzer = Fuzzer::current();
  if (!callback->can_fail) {
    take_log_record();
    return FSDP2_OK;
  }
  if (fuzzer == nullptr) {
    report(std::string(callback->name) + " is called by a thread that makes no call");
  }
  Random& random = fuzzer->random();
  if (random.one_in(6)) {
    fuzzer->call_nested();
  }
  return random.one_in(24) ? fail(random) : do_work(*fuzzer, *callback, arguments);
}
