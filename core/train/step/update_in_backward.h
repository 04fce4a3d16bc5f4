// The optimizer's part of a step, unit by unit inside its last backward, so that no rank ever holds
// the gradients of all its shards.
//
//   in_backward.begin(lr);   // before the last backward of a step
//   ...                      // the backward: units are updated, and their gradients freed
//   in_backward.end();       // updates what no reduction of this backward has brought
//
// A unit is updated as soon as its gradients are final: reduced, over replicas too, and copied to
// the host where shards are there. That is before the next unit's are reduced, on the stream that
// computes, for which the host waits no more than for a backward without updates. The results are
// those of one update at the end, to the bit, as an update looks at one element at a time and each
// parameter gets one. So this is not for what needs all gradients first: clipping, a loss scale,
// which skips steps, and steps that are skipped for gradients that are not finite. Nor for an
// optimizer whose ranks work together, as Muon's.
//
// With several micro batches the gradients of the earlier ones add up on the shards, unless they
// are left unreduced (StepOptions::reduced_last); all are freed in the last backward.
//
// A parameter that a forward reads outside of autograd, too (detached, or under no_grad), has its
// new values for whatever comes later in backward. Where a unit would be gathered for that, or it
// is known to autograd, it is an error; a checkpointed segment that runs again cannot tell.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/fsdp/fully_shard.h"
#include "core/train/optim/grad_norm.h"
#include "core/train/optim/optimizer.h"

namespace fsdp2::train {

class UpdateInBackward {
 public:
  // Error: kUnsupported for an optimizer that communicates.
  explicit UpdateInBackward(std::shared_ptr<Optimizer> optimizer);
  ~UpdateInBackward() { stop(); }
  UpdateInBackward(const UpdateInBackward&) = delete;
  UpdateInBackward& operator=(const UpdateInBackward&) = delete;

  // Forgets the step before, so that has_begun() is false until begin.
  void reset();
  // From here on units are updated, at this rate. Error: kWrongState if parameters were cast since
  // their state was made.
  void begin(double lr);
  void end();
  // No more updates; for a backward that has failed.
  void stop() noexcept;

  // Whether anything has been updated since reset.
  bool has_updated() const { return has_updated_; }
  bool has_begun() const { return has_begun_; }
  // Whether its gradient is among those that were taken.
  bool took_gradient_of(const fsdp::ShardedParam& param) const;
  const TakenGradients& taken() const { return taken_; }

 private:
  // Those of one unit.
  void update(const std::vector<fsdp::ShardedParam*>& params);

  std::shared_ptr<Optimizer> optimizer_;
  TakenGradients taken_;
  std::unordered_map<const fsdp::ShardedParam*, size_t> index_of_;  // of the optimizer's
  bool is_listening_ = false;  // or another step of the same tree may be
  bool has_begun_ = false;
  bool has_updated_ = false;
};

}  // namespace fsdp2::train
