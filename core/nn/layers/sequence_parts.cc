#include "core/nn/layers/sequence_parts.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ---- what travels

// The peers in the graph that goes back to them.
struct HeldPeers : torch::CustomClassHolder {
  explicit HeldPeers(PeersPointer peers) : peers(std::move(peers)) {}
  const PeersPointer peers;
};
using HeldPointer = c10::intrusive_ptr<HeldPeers>;
constexpr char kPeersKey[] = "peers";
constexpr char kShared[] = "attention of sequences that ranks share";

HeldPointer held(const PeersPointer& peers) { return c10::make_intrusive<HeldPeers>(peers); }

void hold(AutogradContext* context, const HeldPointer& peers) {
  context->saved_data[kPeersKey] = c10::IValue::make_capsule(peers);
}

const PeersPointer& peers_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<HeldPeers>(
             context->saved_data.at(kPeersKey).toCapsule())
      ->peers;  // the context keeps it
}

// Where the heads of several tensors are in one buffer [P,B,L,heads,E].
class HeadBuffer {
 public:
  // Room for these counts of heads.
  HeadBuffer(const at::Tensor& like, int64_t peers, int64_t length, std::vector<int64_t> heads)
      : heads_(std::move(heads)) {
    int64_t all = 0;
    for (const int64_t count : heads_) {
      all += count;
    }
    buffer_ = at::empty({peers, like.size(0), length, all, like.size(3)}, like.options());
  }

  // [P,B,L,heads,E] of one of them.
  at::Tensor part(size_t i) const {
    int64_t first = 0;
    for (size_t before = 0; before < i; ++before) {
      first += heads_[before];
    }
    return buffer_.narrow(3, first, heads_[i]);
  }
  HeadBuffer exchanged(SequencePeers& peers) const {
    HeadBuffer received = *this;
    received.buffer_ = at::empty(buffer_.sizes(), buffer_.options());
    peers.all_to_all(received.buffer_, buffer_);
    return received;
  }

 private:
  std::vector<int64_t> heads_;
  at::Tensor buffer_;
};

// [B,L,H,E] each -> [B,P*L,H/P,E].
variable_list heads_to_sequences(const variable_list& parts, SequencePeers& peers) {
  const int64_t size = peers.size();
  std::vector<int64_t> counts;
  for (const at::Tensor& part : parts) {
    counts.push_back(part.size(2) / size);
  }
  const HeadBuffer sent(parts[0], size, parts[0].size(1), counts);
  for (size_t i = 0; i < parts.size(); ++i) {
    sent.part(i).copy_(parts[i].unflatten(2, {size, counts[i]}).permute({2, 0, 1, 3, 4}));
  }
  const HeadBuffer received = sent.exchanged(peers);
  variable_list wholes;
  for (size_t i = 0; i < parts.size(); ++i) {
    wholes.push_back(received.part(i).transpose(0, 1).flatten(1, 2).contiguous());
  }
  return wholes;
}

// [B,P*L,H/P,E] each -> [B,L,H,E].
variable_list sequences_to_heads(const variable_list& wholes, SequencePeers& peers) {
  const int64_t size = peers.size();
  std::vector<int64_t> counts;
  for (const at::Tensor& whole : wholes) {
    counts.push_back(whole.size(2));
  }
  const int64_t length = wholes[0].size(1) / size;
  const HeadBuffer sent(wholes[0], size, length, counts);
  for (size_t i = 0; i < wholes.size(); ++i) {
    sent.part(i).copy_(wholes[i].unflatten(1, {size, length}).transpose(0, 1));
  }
  const HeadBuffer received = sent.exchanged(peers);
  variable_list parts;
  for (size_t i = 0; i < wholes.size(); ++i) {
    parts.push_back(received.part(i).permute({1, 2, 0, 3, 4}).flatten(2, 3).contiguous());
  }
  return parts;
}

// ---- with gradients

struct ShareHeads : torch::autograd::Function<ShareHeads> {
  static variable_list forward(AutogradContext* context, const HeldPointer& peers,
                               at::TensorList parts) {
    hold(context, peers);
    return heads_to_sequences(parts.vec(), *peers->peers);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives(kShared);
    variable_list parts = sequences_to_heads(gradients, *peers_of(context));
    parts.insert(parts.begin(), at::Tensor());  // of the peers
    return parts;
  }
};

struct ShareSequence : torch::autograd::Function<ShareSequence> {
  static at::Tensor forward(AutogradContext* context, const HeldPointer& peers,
                            const at::Tensor& heads) {
    hold(context, peers);
    return sequences_to_heads({heads}, *peers->peers)[0];
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives(kShared);
    return {at::Tensor(), heads_to_sequences({gradients[0]}, *peers_of(context))[0]};
  }
};

struct WholeOf : torch::autograd::Function<WholeOf> {
  static at::Tensor forward(AutogradContext* context, const HeldPointer& held,
                            const at::Tensor& part, int64_t length) {
    hold(context, held);
    SequencePeers& peers = *held->peers;
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.insert(sizes.begin(), peers.size());
    const at::Tensor all = at::empty(sizes, part.options());
    peers.all_gather(all, part.contiguous());
    return all.transpose(0, 1).flatten(1, 2).narrow(1, 0, length).contiguous();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives(kShared);
    const PeersPointer& peers = peers_of(context);
    const at::Tensor own = part_of(gradients[0], 1, peers);
    return {at::Tensor(), own * static_cast<double>(peers->size()), at::Tensor()};
  }
};

struct SumOfParts : torch::autograd::Function<SumOfParts> {
  static at::Tensor forward(AutogradContext* context, const HeldPointer& peers,
                            const at::Tensor& x) {
    hold(context, peers);
    const at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
    peers->peers->sum(sum);
    return sum;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivatives(kShared);
    return {at::Tensor(), gradients[0] * static_cast<double>(peers_of(context)->size())};
  }
};

}  // namespace

at::Tensor part_of(const at::Tensor& x, int64_t dim, const PeersPointer& peers, int64_t padding) {
  if (peers == nullptr) {
    return x;
  }
  const int64_t whole = x.size(dim);
  const int64_t length = (whole + peers->size() - 1) / peers->size();
  const int64_t first = std::min(peers->rank() * length, whole);
  const int64_t there = std::min(length, whole - first);
  const at::Tensor own = x.narrow(dim, first, there);
  if (there == length) {
    return own.contiguous();
  }
  // Pairs of (before, after), from the last dim on.
  const int64_t place = dim < 0 ? -1 - dim : x.dim() - 1 - dim;
  std::vector<int64_t> pads(static_cast<size_t>(2 * place + 2));
  pads.back() = length - there;
  return at::constant_pad_nd(own, pads, padding);
}

at::Tensor whole_of(const at::Tensor& part, int64_t length, const PeersPointer& peers) {
  return peers == nullptr ? part : WholeOf::apply(held(peers), part, length);
}

at::Tensor sum_of_parts(const at::Tensor& x, const PeersPointer& peers) {
  return peers == nullptr ? x : SumOfParts::apply(held(peers), x);
}

std::vector<at::Tensor> share_heads(const std::vector<at::Tensor>& parts,
                                    const PeersPointer& peers) {
  return peers == nullptr ? parts : ShareHeads::apply(held(peers), at::TensorList(parts));
}

at::Tensor share_sequence(const at::Tensor& heads, const PeersPointer& peers) {
  return peers == nullptr ? heads : ShareSequence::apply(held(peers), heads);
}

}  // namespace fsdp2::nn
