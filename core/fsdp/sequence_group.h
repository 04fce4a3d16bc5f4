// The ranks along a mesh's sequence dim (sequence_dim.h) as the peers that a model's modules ask.
//
//   const auto group = SequenceGroup::share(*model, mesh);   // before the model is sharded
//
// It also is the first hook of the model, and makes the peers' inputs alike before anything is
// computed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/comm/mesh.h"
#include "core/nn/module.h"
#include "core/nn/sequence_peers.h"

namespace fsdp2::fsdp {

class SequenceGroup : public nn::SequencePeers, public nn::ForwardHooks {
 public:
  // Collective over the mesh, whose ranks share sequences. REQUIRES: nn::check_sequence_ranks.
  static std::shared_ptr<SequenceGroup> share(nn::Module& model, std::shared_ptr<Mesh> mesh);
  // The model shares nothing any more.
  static void unshare(nn::Module& model, const std::shared_ptr<SequenceGroup>& group);

  explicit SequenceGroup(std::shared_ptr<Mesh> mesh);

  int64_t rank() const override { return group_->rank(); }
  int64_t size() const override { return group_->size(); }
  void all_to_all(const at::Tensor& out, const at::Tensor& in) override;
  void all_gather(const at::Tensor& out, const at::Tensor& in) override;
  void sum(const at::Tensor& tensor) override;

  // What has gone between the peers for the model.
  const CommCounters& counters() const { return group_->gather->counters(); }

  void make_alike(nn::Values& inputs) override;

  void pre_forward(nn::Module& /*module*/, nn::Values& inputs) override { make_alike(inputs); }
  void post_forward(nn::Module& /*module*/, c10::IValue& /*output*/) override {}
  void forward_failed(nn::Module& /*module*/) noexcept override {}

 private:
  // `told`: what each peer says of its inputs.
  void check_are_alike(const std::vector<std::vector<std::string>>& told) const;
  c10::IValue take_from(int peer, const c10::IValue& own);

  const std::shared_ptr<Mesh> mesh_;  // keeps the job
  const std::shared_ptr<const Group> group_;
  const std::shared_ptr<Comm> batches_;  // on the host
};

// The group of a model that shares sequences; null for others.
std::shared_ptr<const SequenceGroup> sequence_group_of(const nn::Module& model);

}  // namespace fsdp2::fsdp
