// What words of a plan are in the C ABI's terms.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config/sharding.h"
#include "fsdp2/fsdp2.h"

namespace fsdp2::client {

// The library's numbers for names of dtypes and paths; "none" is FSDP2_DTYPE_KEEP.
int32_t dtype_number(const std::string& name);
int32_t comm_path_number(const std::string& name);

// reshard_after_forward in the library's numbers; `by_strategy` unless the user says otherwise.
int32_t reshard_number(const config::Sharding& sharding, int32_t by_strategy);

// `names` as the C ABI takes a list; what is returned points into them.
std::vector<const char*> texts_of(const std::vector<std::string>& names);

// --wrap and --wrap-names in the library's terms.
class Wrap {
 public:
  explicit Wrap(const config::Sharding& sharding);
  Wrap(const Wrap&) = delete;
  Wrap& operator=(const Wrap&) = delete;

  // What it points to lives as long as this.
  void set(fsdp2_shard_options* options) const;

 private:
  int32_t wrap_;
  std::vector<std::string> kinds_, names_;
  std::vector<const char*> kind_texts_, name_texts_;
};

// --shard-dim in the library's terms.
class ShardDim {
 public:
  ShardDim(const config::Sharding& sharding, int64_t world_size);
  ShardDim(const ShardDim&) = delete;
  ShardDim& operator=(const ShardDim&) = delete;

  // What it points to lives as long as this.
  void set(fsdp2_shard_options* options);

 private:
  const bool is_first_;
  int64_t ranks_;  // of a shard group
};

}  // namespace fsdp2::client
