#include "tests/fuzz/abi/values.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "tests/fuzz/abi/call.h"

namespace fsdp2::fuzz {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::vector<double> kFlag = {0, 1};
const std::vector<double> kIndex = {0, 0, 1, 2, 3, 5, 8, 13, 20};
const std::vector<double> kSmall = {0, 1, 2, 3};
const std::vector<double> kFloatDtype = {0, 0, 0, 1, 2, 3, 4};

const std::map<std::string, std::vector<double>>& good_numbers() {
  static const std::map<std::string, std::vector<double>> kNumbers = {
      {"accumulate", {1, 1, 1, 2}},
      {"accumulate_last", kFlag},
      {"vocabulary_last", kFlag},
      {"update_in_backward", kFlag},
      {"cuda_graph", {0, 0, 0, 1}},
      {"allow_not_finite", kFlag},
      {"async_op", kFlag},
      {"allocate_memory_from_process_group", kFlag},
      {"backend", {FSDP2_BACKEND_AUTO, FSDP2_BACKEND_THREAD}},
      {"background", kFlag},
      {"batch_size", {0, 0, 1, 2}},
      {"beta1", {0.9, 0, 0.5}},
      {"beta2", {0.999, 0, 0.95}},
      {"chunk_size", {0, 0, 1, 3}},
      {"comm_path", {0, 1, 2}},
      {"comm_schedule", kFlag},
      {"consumer_stream", {0}},
      {"coupled_decay", kFlag},
      {"budget_bytes", {1e9, 1, 1e5, 1e6}},
      {"cpu_offload", kFlag},
      {"cut_long_records", kFlag},
      {"defer_values", kFlag},
      {"decay_steps", {0, 0, 5}},
      {"dim", {0, 0, 0, 1}},
      {"drop_last", kFlag},
      {"dtype", {1, 1, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 0}},
      {"engine", {0, 1, 2}},
      {"plain_operators", {0, 0, 0, 1, 2}},
      {"precision", {0, 1, 2, 3, 4}},
      {"eps", {1e-8, 1e-3, 0}},
      {"every", {1, 1, 2}},
      {"factor", {1, 0.5, 2, 4, 0, -1}},
      {"file_per_tensor", kFlag},
      {"first_row", kIndex},
      {"flag", kFlag},
      {"flags", kFlag},
      {"flat_optimizer_keys", kFlag},
      {"format", {0, 0, 0, 1, 2, 3, 4}},
      {"from_rank0", kFlag},
      {"force_sum_reduction", kFlag},
      {"fsdp_size", {0, 0, 1, 2, 4, -1}},
      {"global_batch", {2, 4, 8}},
      {"gradient_divide_factor", {0, 1, 0.5, 8}},
      {"group", {0, 0, 0, 1}},
      {"init", {0, 0, 1, 2}},
      {"header_version", {FSDP2_HEADER_VERSION}},
      {"index", kIndex},
      {"keep_graph", kFlag},
      {"keep_last", {0, 1, 2}},
      {"keep_special", kFlag},
      {"load_from_rank0", kFlag},
      {"local_rank", {-1, 0}},
      {"loss_chunk", {0, 0, 1, 3}},
      {"loss_mean", kFlag},
      {"loss_scale", {0, 0, 1, 1024, 65536}},
      {"loss_scale_interval", {1, 2000}},
      {"lr", {1e-3, 1e-2, 0, 1, 1e30}},
      {"matched_adamw_rms", {0.2, 0}},
      {"max_file_bytes", {0, 1, 100, 4096}},
      {"max_grad_norm", {0, 1, 1e-3}},
      {"max_new_tokens", {0, 1, 2, 4, 8}},
      {"max_norm", {0, 1, 1e-3}},
      {"max_skips_in_row", {0, 1, 100}},
      {"micro_batches", {1, 1, 2}},
      {"min_level", {10, 20, 30, 40, 100}},
      {"min_lr_ratio", {0, 0.1, 1}},
      {"mode", kFlag},
      {"model_only", kFlag},
      {"modules_per_unit", kSmall},
      {"momentum", {0, 0.9}},
      {"n", {1, 1, 2}},
      {"name_index", {0, 0, 0, 1}},
      {"nesterov", kFlag},
      {"newton_schulz_steps", {5, 1, 2}},
      {"next_step", kIndex},
      {"no_cast_forward_inputs", kFlag},
      {"no_nesterov", kFlag},
      {"no_overwrite", {0, 0, 1}},
      {"no_pin_memory", kFlag},
      {"no_rng", kFlag},
      {"norm_type", {2, 1, 3.5, kInfinity}},
      {"not_finite", {0, 1, 2}},
      {"op", {0, 1, 2}},
      {"optimizer_bytes", {0, 1 << 20}},
      {"optimizer_states", {0, 1, 2}},
      {"order", kFlag},
      {"output_dtype", kFloatDtype},
      {"param_dtype", kFloatDtype},
      {"parameter", kIndex},
      {"partial", kFlag},
      {"prefetch", {-1, 0, 1, 2}},
      {"keep_buffers", kFlag},
      {"one_communicator", kFlag},
      {"rank", {0}},
      {"rank0_only", kFlag},
      {"ranks", kSmall},
      {"read_ahead", {0, 0, 1, 3}},
      {"recurse", kFlag},
      {"reduce_dtype", kFloatDtype},
      {"reduce_unused_parameters", kFlag},
      {"requires_all_reduce", kFlag},
      {"requires_gradient_sync", kFlag},
      {"reserved", {0}},
      {"reshard_after_backward", kFlag},
      {"reshard_after_forward", {0, 1, -1, 2, 4}},
      {"rows", {0, 1, 2}},
      {"safetensors", kFlag},
      {"schedule", {0, 1, 2}},
      {"seed", kIndex},
      {"sequence_length", {1, 4, 8}},
      {"std", {0.02, 0, 1}},
      {"start_lr_ratio", {0, 0, 0.5, 1}},
      {"state_dtype", {0, 0, 1, 3, 4}},
      {"status", {FSDP2_E_IO, FSDP2_E_CANCELLED, FSDP2_E_CALLBACK, FSDP2_OK, 999}},
      {"skip_bad_records", kFlag},
      {"steps_per_epoch", {1, 3, 0, -1, 1e18}},
      {"step", kIndex},
      {"surround", kFlag},
      {"temperature", {0, 1, 0.5}},
      {"tensor_dim", {0, 0, 1}},
      {"threads", {1, 1, 2}},
      {"tiles", {4, 1, 2, 100}},
      {"timeout_ms", {300}},
      {"top_k", {0, 1, 5}},
      {"top_p", {0, 0.5, 0.9, 1}},
      {"total_steps", {0, 10, 100}},
      {"ulysses_size", {0, 0, 1, 2}},
      {"unshard_in_backward", kFlag},
      {"vocab_size", {32, 32, 16}},
      {"warmup_steps", {0, 2}},
      {"weight_decay", {0, 0.1}},
      {"which", {0, 0, 1, 2, 3}},
      {"world_size", {1}},
      {"wrap", {0, 0, 0, 1, 2}},
      {"wrap_embeddings", kFlag},
      {"wrap_head", kFlag},
      {"wrap_min_numel", {0, 0, 1, 100}},
  };
  return kNumbers;
}

// That arguments.cc and options.cc make.
const std::set<std::string> kArrays = {"data",        "from",   "inputs", "lengths",
                                       "offsets",     "prompt", "ranks",  "shape",
                                       "stop_tokens", "tokens", "weights"};

bool has_values(const std::string& owner, const abi_variable& variable) {
  const std::string name = variable.name;
  switch (variable.role) {
    case ABI_NUMBER:
      return name == "struct_size" || name == "cap" || is_count(variable) ||
             good_numbers().count(name) == 1;
    case ABI_TEXT:
    case ABI_TEXTS:
      return texts_of(owner, name) != nullptr;
    case ABI_INPUT:
      return kArrays.count(name) == 1;
    default:
      return true;  // the role says enough
  }
}

std::string find_unknown_field(const char* type) {
  for (size_t i = 0; i < abi_n_structs; ++i) {
    const abi_struct& known = abi_structs[i];
    for (int k = 0; std::string(known.name) == type && k < known.n_fields; ++k) {
      if (!has_values(known.name, known.fields[k])) {
        return std::string(known.name) + "." + known.fields[k].name;
      }
    }
  }
  return "";
}

}  // namespace

abi_argument number_as(const std::string& type, double value) {
  abi_argument argument{};
  if (type == "double") {
    argument.as_double = value;
  } else if (type == "int32_t" || type == "fsdp2_status") {
    argument.as_int32_t = static_cast<int32_t>(value);
  } else if (type == "uint32_t") {
    argument.as_uint32_t = static_cast<uint32_t>(value);
  } else {
    argument.as_int64_t = static_cast<int64_t>(value);
  }
  return argument;
}

std::string text_of_number(const abi_variable& variable, const abi_argument& number) {
  const bool is_double = std::strcmp(variable.type, "double") == 0;
  return is_double            ? std::to_string(number.as_double)
         : variable.size == 4 ? std::to_string(number.as_int32_t)
                              : std::to_string(number.as_int64_t);
}

void write_number(const std::string& type, double value, void* to) {
  const abi_argument argument = number_as(type, value);
  std::memcpy(to, &argument,
              type == "int32_t" || type == "uint32_t" || type == "fsdp2_status" ? 4 : 8);
}

double good_number(const std::string& name, Random& random) {
  return random.of(good_numbers().at(name));
}

abi_argument bad_number(const std::string& type, Random& random) {
  static const std::vector<double> kDoubles = {-1, 0, NAN, kInfinity, -kInfinity, 1e308, 1e-320};
  static const std::vector<int32_t> kInt32 = {-1, 2, 5, 99, INT32_MIN, INT32_MAX};
  static const std::vector<int64_t> kInt64 = {-1, 0, 99, INT64_MIN, INT64_MAX};
  static const std::vector<size_t> kSizes = {SIZE_MAX, kTooMany, SIZE_MAX / 2};
  abi_argument argument{};
  if (type == "double") {
    argument.as_double = random.of(kDoubles);
  } else if (type == "size_t" || type == "uintptr_t") {
    argument.as_size_t = random.of(kSizes);
  } else if (type == "int64_t" || type == "uint64_t") {
    argument.as_int64_t = random.of(kInt64);
  } else {
    argument.as_int32_t = random.of(kInt32);
  }
  return argument;
}

bool is_count(const abi_variable& variable) { return std::strncmp(variable.name, "n_", 2) == 0; }

std::string find_unknown_variable() {
  for (size_t i = 0; i < abi_n_functions; ++i) {
    const abi_function& function = abi_functions[i];
    for (int k = 0; k < function.n_parameters; ++k) {
      const abi_variable& parameter = function.parameters[k];
      if (!has_values(function.name, parameter)) {
        return std::string(function.name) + "'s " + parameter.name;
      }
      const std::string field =
          parameter.role == ABI_OPTIONS ? find_unknown_field(parameter.type) : "";
      if (!field.empty()) {
        return field;
      }
    }
  }
  return "";
}

}  // namespace fsdp2::fuzz
