// Parameters that were frozen when a checkpoint was saved and are trained now, or the other way
// round. A checkpoint of ours has the optimizer's state of only those that it updates, and names
// the others, so that state that is lost is not taken for state that never was:
//
//   fsdp2.frozen    a list of names; absent if the optimizer has all parameters
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/ckpt/state/state_dict.h"
#include "core/ckpt/state/state_names.h"
#include "core/ckpt/state/state_source.h"
#include "core/fsdp/fully_shard.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

void add_frozen(const Optimizer& optimizer, ckpt::StateDict* state);

// What the checkpoint says was frozen; nothing where it is another trainer's. Error: kCorruptData
// if it is no list of names.
std::set<std::string> frozen_in(const ckpt::StateSource& source);

class FreezeChanges {
 public:
  // names: those that the checkpoint has for the parameters of the optimizer's root.
  FreezeChanges(const ckpt::StateNames& names, const std::set<std::string>& frozen,
                Optimizer* optimizer);

  // Whether it is trained now and was frozen, so that the checkpoint has none of its state.
  bool has_thawed(const fsdp::ShardedParam* param) const;
  // Lets the state of those begin anew; returns its names. Rank 0 warns of it, and of state that
  // is left behind because its parameter is frozen now.
  std::vector<std::string> carry_out(const std::string& checkpoint) const;

 private:
  Optimizer* optimizer_;
  std::set<const fsdp::ShardedParam*> thawed_;
  std::vector<std::string> left_behind_;
};

}  // namespace fsdp2::train
