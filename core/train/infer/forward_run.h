// Several forwards without gradients in a row, over a module that may be sharded.
//
//   ForwardRun run(module, options.reshard_after_forward);
//   for (int64_t i = 0; i < run.most(mine); ++i) {
//     forward(i < mine ? batch(i) : one_token(tokens));
//   }
//   run.finish();
//
// Where forwards gather, every rank takes part in each: one that has nothing left to compute runs
// the same forward over a single token, and forgets the result.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/nn/module.h"

namespace fsdp2::train {

// One row of one token that any vocabulary has, where these tokens are.
at::Tensor one_token(const at::Tensor& tokens);

class ForwardRun {
 public:
  // reshard_after_forward: unset: as the units have it; false: what the run has gathered stays
  // until finish(). Their own settings come back at the end.
  ForwardRun(nn::Module& module, std::optional<bool> reshard_after_forward);
  ~ForwardRun();
  ForwardRun(const ForwardRun&) = delete;
  ForwardRun& operator=(const ForwardRun&) = delete;

  // Collective over the module's ranks; of a module that is not sharded, the number itself.
  int64_t most(int64_t number) const;
  std::vector<double> sums(std::vector<double> numbers) const;

  // Frees what the run was asked to keep. Left out after an exception.
  void finish();

 private:
  void restore();

  const std::shared_ptr<fsdp::Unit> root_;  // null: not sharded
  const bool keeps_gathered_;
  std::vector<std::pair<fsdp::GroupSettings*, std::optional<bool>>> settings_;
};

}  // namespace fsdp2::train
