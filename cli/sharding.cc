#include "cli/sharding.h"

#include <algorithm>
#include <limits>
#include <map>

#include "cli/arguments.h"

namespace fsdp2::cli {

namespace {

const std::map<std::string, int32_t> kDtypes = {{"none", FSDP2_DTYPE_KEEP},
                                                {"fp32", FSDP2_DTYPE_F32},
                                                {"bf16", FSDP2_DTYPE_BF16},
                                                {"fp16", FSDP2_DTYPE_F16}};
const std::map<std::string, int32_t> kCommPaths = {{"auto", FSDP2_COMM_PATH_AUTO},
                                                   {"direct", FSDP2_COMM_PATH_DIRECT},
                                                   {"packed", FSDP2_COMM_PATH_PACKED}};

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

void check_parts(const std::string& flag, const std::string& text) {
  const std::vector<std::string> parts = parts_of(text);
  require(std::find(parts.begin(), parts.end(), "") == parts.end(),
          flag + " " + text + ": expected names with one comma between them");
}

// The first dim that the ranks divide evenly; 0 if there is none. `ranks`: their number.
fsdp2_status first_even_dim(const fsdp2_shard_dim_info* info, int32_t* out, void* ranks) {
  const int64_t n_ranks = *static_cast<const int64_t*>(ranks);
  *out = 0;
  for (int32_t dim = 0; dim < info->n_dims; ++dim) {
    if (info->shape[dim] % n_ranks == 0) {
      *out = dim;
      break;
    }
  }
  return FSDP2_OK;
}

// ", 2, 4": those of shard groups that have replicas.
std::string smaller_sizes(int64_t world_size) {
  std::string sizes;
  for (int64_t size = 2; size <= world_size / 2; ++size) {
    sizes += world_size % size == 0 ? ", " + std::to_string(size) : "";
  }
  return sizes;
}

}  // namespace

std::vector<const char*> texts_of(const std::vector<std::string>& names) {
  std::vector<const char*> texts;
  for (const std::string& name : names) {
    texts.push_back(name.c_str());
  }
  return texts;
}

int32_t dtype_number(const std::string& name) { return kDtypes.at(name); }

int32_t comm_path_number(const std::string& name) { return kCommPaths.at(name); }

void check_sharding(const Sharding& sharding) {
  const std::string& reshard = sharding.reshard_after_forward;
  const bool is_size = is_number(reshard) && reshard.size() < 10 && std::stol(reshard) >= 2;
  require(is_size || reshard == "default" || reshard == "true" || reshard == "false",
          "--reshard-after-forward " + reshard +
              ": expected default, true, false, or a number of ranks of at least 2");
  require_within("--fsdp-size", sharding.fsdp_size, 0, std::numeric_limits<int32_t>::max());
  require_within("--ulysses-size", sharding.ulysses_size, 1, std::numeric_limits<int32_t>::max());
  require(sharding.strategy != "no_shard" || sharding.ulysses_size == 1,
          "--strategy no_shard and --ulysses-size " + std::to_string(sharding.ulysses_size) +
              " contradict each other: ranks that share sequences are of one shard group");
  const std::string& strategy = sharding.strategy;
  const bool keeps = strategy == "shard_grad_op" || strategy == "hybrid_shard_zero2";
  require(!keeps || reshard == "default" || reshard == "false",
          "--strategy " + strategy + " and --reshard-after-forward " + reshard +
              " contradict each other");
  require(strategy != "no_shard" || sharding.fsdp_size <= 1,
          "--strategy no_shard and --fsdp-size " + std::to_string(sharding.fsdp_size) +
              " contradict each other");
  const bool hybrid = strategy == "hybrid_shard" || strategy == "hybrid_shard_zero2";
  require(!hybrid || sharding.fsdp_size >= 2,
          "--strategy " + strategy + " needs --fsdp-size, the number of ranks per shard group");
  require(!sharding.wrap.empty(), "--wrap '': expected default, none, or names of classes");
  check_parts("--wrap", sharding.wrap);
  check_parts("--wrap-names", sharding.wrap_names);
}

void check_sharding_for_world(const Sharding& sharding, int64_t world_size) {
  const int64_t size = sharding.fsdp_size;
  const bool has_replicas = size > 1 && size < world_size;
  require(!has_replicas || world_size % size == 0,
          "--fsdp-size " + std::to_string(size) + " does not divide the " +
              std::to_string(world_size) + " ranks: expected 0 for all of them" +
              smaller_sizes(world_size));
  const int64_t sharers = sharding.ulysses_size;
  require(world_size % sharers == 0, "--ulysses-size " + std::to_string(sharers) +
                                         " does not divide the " + std::to_string(world_size) +
                                         " ranks");
  require(!has_replicas || size % sharers == 0,
          "--ulysses-size " + std::to_string(sharers) + " does not divide --fsdp-size " +
              std::to_string(size) + ": ranks that share sequences are of one shard group");
  const std::string& reshard = sharding.reshard_after_forward;
  const int64_t shard_group = shard_group_size(sharding, world_size);
  require(!is_number(reshard) || shard_group % std::stol(reshard) == 0,
          "--reshard-after-forward " + reshard + " does not divide the shard group's " +
              std::to_string(shard_group) + (shard_group == 1 ? " rank" : " ranks"));
}

int64_t shard_group_size(const Sharding& sharding, int64_t world_size) {
  if (sharding.strategy == "no_shard") {
    return 1;
  }
  const int64_t size = sharding.fsdp_size;
  return size > 1 && size < world_size ? size : world_size;
}

int32_t reshard_number(const Sharding& sharding, int32_t by_strategy) {
  const std::string& text = sharding.reshard_after_forward;
  if (text == "true") {
    return FSDP2_RESHARD_ALWAYS;
  }
  if (text == "false") {
    return FSDP2_RESHARD_NEVER;
  }
  return text == "default" ? by_strategy : static_cast<int32_t>(std::stol(text));
}

Wrap::Wrap(const Sharding& sharding)
    : wrap_(sharding.wrap == "default" ? FSDP2_WRAP_DEFAULT
            : sharding.wrap == "none"  ? FSDP2_WRAP_NONE
                                       : FSDP2_WRAP_KINDS),
      kinds_(wrap_ == FSDP2_WRAP_KINDS ? parts_of(sharding.wrap) : std::vector<std::string>()),
      names_(parts_of(sharding.wrap_names)),
      kind_texts_(texts_of(kinds_)),
      name_texts_(texts_of(names_)) {}

void Wrap::set(fsdp2_shard_options* options) const {
  options->wrap = wrap_;
  options->wrap_kinds = kind_texts_.data();
  options->n_wrap_kinds = kind_texts_.size();
  options->wrap_names = name_texts_.data();
  options->n_wrap_names = name_texts_.size();
}

ShardDim::ShardDim(const Sharding& sharding, int64_t world_size)
    : is_first_(sharding.shard_dim != "auto"), ranks_(shard_group_size(sharding, world_size)) {}

void ShardDim::set(fsdp2_shard_options* options) {
  if (!is_first_) {
    options->shard_dim = first_even_dim;
    options->shard_dim_user_data = &ranks_;
  }
}

}  // namespace fsdp2::cli
