// A language model that the ranks of the job have sharded, with its values, ready for inference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/infer/options.h"
#include "cli/library.h"

namespace fsdp2::cli {

class ShardedModel {
 public:
  // Collective. Makes the model and runs `work` with it. If this rank fails, the others are told.
  // `shared` is what must be equal on all ranks besides the options of the model, as lines
  // "--top-k=4". Throws Failure, and UsageError for options that do not suit the number of ranks.
  static void use(const ModelOptions& options, const std::string& shared,
                  const std::function<void(const ShardedModel&)>& work);

  int rank() const { return job_.rank; }
  int world_size() const { return job_.world_size; }
  // Rows are dealt out over these: ranks that share sequences take the same ones.
  int data_rank() const { return static_cast<int>(job_.rank / sequence_ranks_); }
  int data_ranks() const { return static_cast<int>(job_.world_size / sequence_ranks_); }
  int64_t vocab_size() const { return vocab_size_; }
  const Mesh& mesh() const { return mesh_; }
  const Module& module() const { return module_; }

  // Collective. The elements of all ranks' tensors, one rank after the other; T is their type.
  // Ranks that share sequences have the same tensor, which counts once.
  template <typename T>
  std::vector<T> gather(const Tensor& own) const {
    const Tensor all = gather_flat(own);
    const auto info = info_of<fsdp2_tensor_info>(fsdp2_tensor_get_info, all.get());
    std::vector<T> values(static_cast<size_t>(info.n_bytes) / sizeof(T));
    check(fsdp2_tensor_read(all.get(), values.data(), static_cast<size_t>(info.n_bytes)));
    return values;
  }

 private:
  ShardedModel() = default;
  void prepare(const ModelOptions& options, const std::string& shared);
  Tensor gather_flat(const Tensor& own) const;

  Mesh mesh_;
  fsdp2_mesh_info job_{};
  int64_t sequence_ranks_ = 1;
  int64_t vocab_size_ = 0;
  Module module_;
  Shard shard_;
};

}  // namespace fsdp2::cli
