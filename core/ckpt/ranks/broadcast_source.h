// What rank 0 has open, or in memory, as a checkpoint that all ranks read together: the others need
// neither the files nor the memory.
//
//   const BroadcastSource source(*team, team->rank() == 0 ? &full : nullptr);
//   load_training_state(objects, source, /*partial=*/false);
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/state/state_source.h"
#include "core/comm/team.h"

namespace fsdp2::ckpt {

class BroadcastSource final : public StateSource {
 public:
  // Collective: sends names, shapes and objects. source: null on ranks other than 0; `team` and it
  // outlive this. `name` is what the source is called, alike on all ranks. Errors: the source's, on
  // all ranks; those of an object that cannot be read only where it is asked for.
  BroadcastSource(Team& team, const StateSource* source,
                  const std::string& name = "the state of rank 0");

  bool is_collective() const override { return true; }
  // Rank 0 reads the tensor and sends it whole: memory for one is needed. Errors of rank 0 are
  // kPeerFailed on the others.
  void read(const StateEntry& entry, at::IntArrayRef begin, const at::Tensor& out) const override;
  PythonValue read_object(const StateEntry& entry) const override;
  void verify() const override;

 private:
  Team& team_;
  const StateSource* source_;
  struct Object {
    PythonValue value;           // None of a tensor
    std::optional<Error> error;  // in its place
  };
  std::vector<Object> objects_;  // by StateEntry::index
};

}  // namespace fsdp2::ckpt
