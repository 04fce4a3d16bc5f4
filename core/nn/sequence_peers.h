// Ranks that share sequences: each computes on one part of every row of tokens, and meets the
// others where positions see each other. Models know no more of ranks than this.
//
//   a row of 10 tokens, 4 peers     0 1 2 | 3 4 5 | 6 7 8 | 9 . .
//
// Parts are equal, contiguous and in the order of the peers. The row is padded at its end, so the
// last parts may be padding. layers/sequence_parts.h has what a model does with its part.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "core/nn/module.h"

namespace fsdp2::nn {

class SequencePeers {
 public:
  virtual ~SequencePeers() = default;

  virtual int64_t rank() const = 0;  // among the peers
  virtual int64_t size() const = 0;

  // These are collective over the peers, on contiguous tensors of equal sizes and dtypes, and
  // record no gradients. What is computed from the results comes after them, on a device, too.
  //
  // Both are size() equal parts: in's part i goes to peer i, out's part i comes from there.
  virtual void all_to_all(const at::Tensor& out, const at::Tensor& in) = 0;
  // out: size() * in.numel() elements, by peer.
  virtual void all_gather(const at::Tensor& out, const at::Tensor& in) = 0;
  // In place.
  virtual void sum(const at::Tensor& tensor) = 0;

  // Peers are to be given the same batch. An input that only some of them are given (a mask, say)
  // goes to the others. Error: kInvalidArgument, on all peers, for inputs that differ.
  virtual void make_alike(Values& inputs) = 0;
};

// How many elements a position of a row brings to an exchange: of heads for whole sequences, and
// back. None: the module exchanges nothing itself.
struct ExchangedNumel {
  int64_t there = 0;
  int64_t back = 0;
};

// What a module has that computes on its part of the sequences once it has peers. Without them it
// computes on the whole.
class SequenceSharer {
 public:
  virtual ~SequenceSharer() = default;

  // Error: kInvalidArgument if so many ranks cannot share what it computes.
  virtual void check_peers(int64_t /*ranks*/) const {}
  virtual ExchangedNumel exchanged_numel(int64_t /*ranks*/) const { return {}; }
  // Null: no peers.
  void set_peers(std::shared_ptr<SequencePeers> peers) { peers_ = std::move(peers); }
  const std::shared_ptr<SequencePeers>& peers() const { return peers_; }

 private:
  std::shared_ptr<SequencePeers> peers_;
};

// Collective over the peers of a module that has some: SequencePeers::make_alike.
void make_inputs_alike(const Module& module, Values& inputs);

// How many ranks share the sequences of a batch that the module is given; 1 without peers.
int64_t sequence_ranks(const Module& module);

// Errors, with nothing changed: kUnsupported for a module that takes no whole sequences to share,
// and check_peers of what is in it.
void check_sequence_ranks(const Module& root, int64_t ranks);
// Gives all of them that are in the module, itself among them, these peers.
void set_sequence_peers(Module& root, const std::shared_ptr<SequencePeers>& peers);

}  // namespace fsdp2::nn
