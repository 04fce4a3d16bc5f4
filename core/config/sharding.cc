#include "core/config/sharding.h"

namespace fsdp2::config {

std::vector<std::string> strategy_names() {
  return {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"};
}

std::vector<std::string> dtype_names() { return {"fp32", "bf16", "fp16"}; }

std::vector<std::string> dtype_names_or_none() { return {"none", "fp32", "bf16", "fp16"}; }

std::vector<std::string> param_dtype_names() { return {"none", "auto", "fp32", "bf16", "fp16"}; }

std::vector<std::string> comm_path_names() { return {"auto", "direct", "packed"}; }

std::vector<std::string> shard_dim_names() { return {"0", "auto"}; }

}  // namespace fsdp2::config
