#include "tests/fuzz/abi/fuzzer.h"

#include <cstring>

#include "tests/fuzz/abi/foreign_tensor.h"
#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/abi/oracle.h"
#include "tests/fuzz/abi/outcomes.h"

namespace fsdp2::fuzz {

namespace {

thread_local Fuzzer* current_fuzzer = nullptr;

// What makes an object of each type.
const std::vector<std::pair<const char*, const char*>> kMakers = {
    {"fsdp2_mesh", "fsdp2_mesh_create"},
    {"fsdp2_tensor", "fsdp2_tensor_from_buffer"},
    {"fsdp2_state", "fsdp2_state_create"},
    {"fsdp2_loader", "fsdp2_loader_open"},
    {"fsdp2_shard", "fsdp2_shard_create"},
    {"fsdp2_optimizer", "fsdp2_optimizer_create_adamw"},
    {"fsdp2_step", "fsdp2_step_create"},
    {"fsdp2_scope", "fsdp2_scope_create"},
    {"fsdp2_generator", "fsdp2_generator_create"},
    {"fsdp2_tokenizer", "fsdp2_tokenizer_open"}};

// What random calls would hardly ever do in this order.
const std::vector<std::vector<const char*>> kSequences = {
    {"fsdp2_module_from_config", "fsdp2_shard_create", "fsdp2_optimizer_create_sgd",
     "fsdp2_step_create"},
    {"fsdp2_loader_next", "fsdp2_module_forward", "fsdp2_tensor_backward", "fsdp2_optimizer_run"},
    {"fsdp2_loader_next", "fsdp2_module_forward", "fsdp2_tensor_run_backward"},
    {"fsdp2_loader_next", "fsdp2_module_forward", "fsdp2_op_call", "fsdp2_tensor_backward"},
    {"fsdp2_scope_create", "fsdp2_op_call", "fsdp2_op_call", "fsdp2_scope_destroy"},
    {"fsdp2_generator_create", "fsdp2_generator_get_state", "fsdp2_op_call",
     "fsdp2_generator_set_state"},
    {"fsdp2_tokenizer_open", "fsdp2_tokenizer_encode", "fsdp2_tokenizer_decode"},
    {"fsdp2_loader_next", "fsdp2_step_run", "fsdp2_loader_next", "fsdp2_step_run"},
    {"fsdp2_shard_set_gradient_ready", "fsdp2_loader_next", "fsdp2_step_run"},
    {"fsdp2_shard_set_all_gather_extension", "fsdp2_shard_unshard", "fsdp2_shard_reshard"},
    {"fsdp2_shard_set_all_reduce_hook", "fsdp2_loader_next", "fsdp2_step_run"},
    {"fsdp2_module_create_custom", "fsdp2_module_add_parameter", "fsdp2_module_create_custom",
     "fsdp2_module_add_child", "fsdp2_module_forward", "fsdp2_tensor_backward"},
    {"fsdp2_module_create_layer", "fsdp2_module_create_layer", "fsdp2_module_add_child",
     "fsdp2_module_forward", "fsdp2_tensor_backward"},
    {"fsdp2_checkpoint_save", "fsdp2_checkpoint_load", "fsdp2_checkpoint_get_report"},
    {"fsdp2_checkpoint_save_pretrained", "fsdp2_module_from_pretrained", "fsdp2_shard_create"},
    {"fsdp2_checkpoint_get_state", "fsdp2_state_gather", "fsdp2_checkpoint_set_state"},
    {"fsdp2_state_add_tensor", "fsdp2_state_add_value", "fsdp2_state_save", "fsdp2_state_load"},
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

const abi_function& function_of(const std::string& name) {
  for (size_t i = 0; i < abi_n_functions; ++i) {
    if (name == abi_functions[i].name) {
      return abi_functions[i];
    }
  }
  report("no function " + name);
}

// What would end most other calls' work is called less often.
bool is_rare(const abi_function& function) {
  const std::string name = function.name;
  return ends_with(name, "_destroy") || name == "fsdp2_mesh_fail";
}

// How many handles an output has: one, or as many as the number behind its room says.
size_t handles_in(const Call& call, const Output& output) {
  const int cap = output.parameter + 1;
  if (cap >= call.function->n_parameters ||
      std::strcmp(call.function->parameters[cap].name, "cap") != 0) {
    return 1;
  }
  return *static_cast<const size_t*>(call.arguments[cap + 1].pointer);
}

fsdp2_tensor_info info_of(uint64_t tensor) {
  fsdp2_tensor_info info;
  info.struct_size = sizeof(info);
  info.n_bytes = 0;
  if (fsdp2_tensor_get_info({tensor}, &info) != FSDP2_OK) {  // another thread has destroyed it
    info.n_dims = -1;
  }
  return info;
}

}  // namespace

Fuzzer::Fuzzer(Holdings& holdings, int64_t timeout_ms, bool alone)
    : holdings_(holdings), timeout_ms_(timeout_ms), alone_(alone) {
  current_fuzzer = this;
}

Fuzzer::~Fuzzer() { current_fuzzer = nullptr; }

Fuzzer* Fuzzer::current() { return current_fuzzer; }

void Fuzzer::call_any(size_t wrong) {
  replenish();
  if (random_.one_in(16)) {
    for (const char* function : random_.of(kSequences)) {
      call(function, wrong * 4);
    }
    return;
  }
  const abi_function* function = &abi_functions[random_.below(abi_n_functions)];
  while (is_rare(*function) && !random_.one_in(4)) {
    function = &abi_functions[random_.below(abi_n_functions)];
  }
  const auto made = make_call(*function, source(), wrong);
  make(*made);
  drop_surplus();
}

fsdp2_status Fuzzer::call(const std::string& function, size_t wrong) {
  const auto made = make_call(function_of(function), source(), wrong);
  return make(*made);
}

void Fuzzer::destroy(const std::string& type, uint64_t id) {
  Call call(function_of(type + "_destroy"));
  call.arguments[0].id = id;
  call.text = type + "_destroy(" + std::to_string(id) + ")";
  make(call);
}

fsdp2_status Fuzzer::make(Call& call) {
  if (call.lent != nullptr) {
    lend(call.lent);
  }
  const Record before = error_record();
  Call* const outer = std::exchange(innermost_, &call);
  Noted noted(call.text);
  const fsdp2_status status = call.function->call(call.arguments.data());
  noted.returned(fsdp2_status_name(status));
  innermost_ = outer;
  count_outcome(*call.function, status);
  check_call(call, status, before);
  if (outer != nullptr && status != FSDP2_OK) {
    outer->touched_record = true;
  }
  settle_loans(call, status);
  if (status == FSDP2_OK && call.function->can_fail) {
    take_outputs(call);
  }
  if (alone_ && depth_ == 0 && fsdp2_live_handles() != static_cast<int64_t>(holdings_.count())) {
    report(call.text + ": the library has " + std::to_string(fsdp2_live_handles()) +
           " live handles, the fuzzer " + std::to_string(holdings_.count()));
  }
  return status;
}

// What a call does not take over stays the caller's.
void Fuzzer::settle_loans(const Call& call, fsdp2_status status) {
  if (call.lent != nullptr && status != FSDP2_OK) {
    if (!came_back(call.lent)) {
      report(call.text + ": has failed, and released its user_data all the same");
    }
    ::operator delete(call.lent);
  }
  for (int i = 0; i < call.function->n_parameters; ++i) {
    void* pointer = call.arguments[i].pointer;
    if (call.function->parameters[i].role == ABI_FOREIGN && pointer != nullptr &&
        status != FSDP2_OK) {
      delete_foreign_tensor(pointer);
    }
  }
}

// What a tensor is good for, by what made it. Large ones would grow from call to call.
void Fuzzer::sort_tensor(const std::string& maker, uint64_t id) {
  const fsdp2_tensor_info info = info_of(id);
  if (static_cast<size_t>(info.n_bytes) > kRoom) {
    destroy("fsdp2_tensor", id);
  } else if (maker == "fsdp2_module_forward") {
    holdings_.remember(info.n_dims == 0 ? "loss" : "outputs", id);
  } else if (maker == "fsdp2_loader_next") {
    holdings_.remember("inputs", id);
    holdings_.remember("batch", id);
  }
}

void Fuzzer::take_outputs(const Call& call) {
  const std::string name = call.function->name;
  for (const Output& output : call.outputs) {
    const abi_variable& parameter = call.function->parameters[output.parameter];
    const std::string type = parameter.type;
    if (type == "struct DLManagedTensorVersioned") {
      void* managed = nullptr;
      std::memcpy(&managed, output.memory, sizeof(managed));
      holdings_.keep_loan(managed);
      continue;
    }
    if (parameter.role != ABI_OUTPUT || type.rfind("fsdp2_", 0) != 0) {
      continue;
    }
    if (type == "fsdp2_value") {
      take_values(call, output);
      continue;
    }
    for (size_t i = 0; i < handles_in(call, output); ++i) {
      uint64_t id = 0;
      std::memcpy(&id, output.memory + sizeof(id) * i, sizeof(id));
      if (id == 0 && (name == "fsdp2_loader_get_images" || name == "fsdp2_loader_get_videos" ||
                      name == "fsdp2_tokenizer_encode_prompt")) {
        continue;  // a batch without any
      }
      holdings_.take(type, id);
      if (type == "fsdp2_tensor") {
        sort_tensor(name, id);
      }
    }
  }
  if (ends_with(name, "_destroy")) {
    holdings_.let_go(call.function->parameters[0].type, call.arguments[0].id);
  }
  // A callback may have destroyed the very scope that the outputs of the call around it went into.
  if (name == "fsdp2_scope_destroy" || name == "fsdp2_function_call") {
    let_go_of_stale_tensors();
  }
}

void Fuzzer::take_values(const Call& call, const Output& output) {
  for (size_t i = 0; i < handles_in(call, output); ++i) {
    fsdp2_value value;
    std::memcpy(&value, output.memory + sizeof(value) * i, sizeof(value));
    if (value.kind == FSDP2_VALUE_TENSOR) {
      holdings_.take("fsdp2_tensor", value.tensor.id);
      sort_tensor(call.function->name, value.tensor.id);
    }
  }
}

// A scope has destroyed its tensors.
void Fuzzer::let_go_of_stale_tensors() {
  if (innermost_ != nullptr) {
    innermost_->touched_record = true;
  }
  for (const auto& [type, id] : holdings_.all()) {
    fsdp2_tensor_info info;
    info.struct_size = sizeof(info);
    if (type == "fsdp2_tensor" && fsdp2_tensor_get_info({id}, &info) == FSDP2_E_STALE_HANDLE) {
      holdings_.let_go(type, id);
    }
  }
}

void Fuzzer::replenish() {
  for (const auto& [type, maker] : kMakers) {
    if (holdings_.count(type) > 0 || random_.one_in(2)) {
      continue;
    }
    if (std::string(type) == "fsdp2_shard") {
      call("fsdp2_module_from_config", 0);  // since others are sharded already
    }
    if (call(maker, 0) != FSDP2_OK) {
      return;  // the next ones need it
    }
  }
}

void Fuzzer::drop_surplus() {
  static const std::pair<const char*, size_t> kMost[] = {
      {"fsdp2_mesh", 8},   {"fsdp2_module", 6},    {"fsdp2_shard", 6},    {"fsdp2_optimizer", 6},
      {"fsdp2_loader", 4}, {"fsdp2_step", 6},      {"fsdp2_state", 6},    {"fsdp2_tensor", 40},
      {"fsdp2_scope", 4},  {"fsdp2_generator", 4}, {"fsdp2_tokenizer", 4}};
  for (const auto& [type, most] : kMost) {
    if (holdings_.count(type) > most) {
      destroy(type, holdings_.oldest(type));
    }
  }
  if (random_.one_in(8)) {
    if (void* loan = holdings_.take_loan(random_)) {
      delete_foreign_tensor(loan);
    }
  }
}

void Fuzzer::destroy_all() {
  // Another thread may have destroyed a scope between a call that put its outputs there and the
  // note of these outputs.
  let_go_of_stale_tensors();
  auto held = holdings_.all();
  while (!held.empty()) {
    const size_t next = random_.below(held.size());
    destroy(held[next].first, held[next].second);
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(next));
  }
  while (void* loan = holdings_.take_loan(random_)) {
    delete_foreign_tensor(loan);
  }
}

void Fuzzer::call_nested() {
  if (depth_ >= 2) {
    return;
  }
  ++depth_;
  for (size_t i = random_.below(4); i > 0; --i) {
    call_any(/*wrong=*/8);
  }
  --depth_;
}

}  // namespace fsdp2::fuzz
