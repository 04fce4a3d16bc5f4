// Muon (Jordan, "Muon: An optimizer for hidden layers in neural networks", 2024), as
// torch.optim.Muon: the momentum of a matrix becomes its nearest orthogonal matrix, by Newton's and
// Schulz's iteration in bf16. What is no matrix of a hidden layer is AdamW's.
//
// Note [Muon on shards]
// The iteration needs whole matrices. In each step the ranks of a shard group gather the updates of
// a unit's matrices in bf16, each matrix is worked on by one of the ranks alone, and the results
// travel back as rows (core/fsdp/group/whole_matrices.h). With N elements of matrices over n ranks,
// a rank receives about 2 N (n-1)/n (1 + 1/n) bytes in a step. From the same gradients any number
// of ranks makes the same matrices, to the bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/train/optim/adamw.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  // decoupled

  // How matrices are updated.
  double momentum = 0.95;
  bool nesterov = true;
  int64_t newton_schulz_steps = 5;
  // The rate of a matrix [m,n] is lr * matched_adamw_rms * sqrt(max(m, n)), so that updates are as
  // large as AdamW's are with that root mean square; 0: lr * sqrt(max(1, m / n)), Jordan's own.
  double matched_adamw_rms = 0.2;

  // AdamW's, for the rest.
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled_weight_decay = true;

  // Whether the group's parameters are updated as matrices; make_muon decides that by itself.
  bool has_matrices = true;
};

// kInvalidArgument for what the algorithm cannot do.
void check(const MuonOptions& options);

// Group 0 has the matrices of hidden layers: all parameters of two dims but embeddings, heads
// (lm_head, output_layer) and what is tied to these. The others are in a group 1 of AdamW, of the
// same rate and decay. Where there are no such matrices, group 0 is AdamW's.
//
// Optimizer::step is collective over the mesh then. A parameter is updated if it has a gradient on
// any rank; the rows of a rank that lacks it count as zeros.
std::unique_ptr<Optimizer> make_muon(std::shared_ptr<fsdp::Unit> root, const MuonOptions& options);

// Moves matrices into a new group; see Note [Groups] in optimizer.h. Those that AdamW shall have go
// to a group with AdamWOptions (adamw.h). Error, beside those of groups: kInvalidArgument for a
// group of matrices with a parameter that is none.
void add_group(Optimizer& optimizer, const std::vector<std::string>& names,
               const MuonOptions& options);

// The options of a group of AdamW in a Muon.
MuonOptions in_muon(const AdamWOptions& options);

}  // namespace fsdp2::train
