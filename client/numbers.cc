#include "client/numbers.h"

#include <map>

#include "core/config/checks/require.h"
#include "core/config/checks/sharding_checks.h"

namespace fsdp2::client {

namespace {

const std::map<std::string, int32_t> kDtypes = {{"none", FSDP2_DTYPE_KEEP},
                                                {"fp32", FSDP2_DTYPE_F32},
                                                {"bf16", FSDP2_DTYPE_BF16},
                                                {"fp16", FSDP2_DTYPE_F16}};
const std::map<std::string, int32_t> kCommPaths = {{"auto", FSDP2_COMM_PATH_AUTO},
                                                   {"direct", FSDP2_COMM_PATH_DIRECT},
                                                   {"packed", FSDP2_COMM_PATH_PACKED}};

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

int32_t reshard_number(const config::Sharding& sharding, int32_t by_strategy) {
  const std::string& text = sharding.reshard_after_forward;
  if (text == "true") {
    return FSDP2_RESHARD_ALWAYS;
  }
  if (text == "false") {
    return FSDP2_RESHARD_NEVER;
  }
  return text == "default" ? by_strategy : static_cast<int32_t>(std::stol(text));
}

Wrap::Wrap(const config::Sharding& sharding)
    : wrap_(sharding.wrap == "default" ? FSDP2_WRAP_DEFAULT
            : sharding.wrap == "none"  ? FSDP2_WRAP_NONE
                                       : FSDP2_WRAP_KINDS),
      kinds_(wrap_ == FSDP2_WRAP_KINDS ? config::parts_of(sharding.wrap)
                                       : std::vector<std::string>()),
      names_(config::parts_of(sharding.wrap_names)),
      kind_texts_(texts_of(kinds_)),
      name_texts_(texts_of(names_)) {}

void Wrap::set(fsdp2_shard_options* options) const {
  options->wrap = wrap_;
  options->wrap_kinds = kind_texts_.data();
  options->n_wrap_kinds = kind_texts_.size();
  options->wrap_names = name_texts_.data();
  options->n_wrap_names = name_texts_.size();
}

ShardDim::ShardDim(const config::Sharding& sharding, int64_t world_size)
    : is_first_(sharding.shard_dim != "auto"),
      ranks_(config::shard_group_size(sharding, world_size)) {}

void ShardDim::set(fsdp2_shard_options* options) {
  if (!is_first_) {
    options->shard_dim = first_even_dim;
    options->shard_dim_user_data = &ranks_;
  }
}

}  // namespace fsdp2::client
