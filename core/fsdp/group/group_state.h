// Where the gathered parameters of a group are; param_group.h draws the ways between the states.
#pragma once

namespace fsdp2::fsdp {

enum class GroupState {
  kSharded,
  kGathering,
  kUnsharded,
  kPostForward,  // slices of the gathered parameters on the ranks of a smaller group
};

}  // namespace fsdp2::fsdp
