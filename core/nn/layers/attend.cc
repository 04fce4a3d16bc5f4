#include "core/nn/layers/attend.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_safe_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "core/base/error.h"
#include "core/nn/layers/activation.h"
#include "core/nn/layers/dropout.h"
#include "core/nn/layers/host_attention.h"
#include "core/nn/layers/packed_sequences.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::nn {

namespace {

// LibTorch's fused attention takes fewer key-value heads than heads on CPUs, and on GPUs in 16
// bits.
bool fused_attention_groups_heads(const at::Tensor& q) {
  return acts_as_host(q.device()) || q.scalar_type() != at::kFloat;
}

// Copies in fp32, for as long as they are there.
std::vector<at::Tensor> copies_in_fp32(std::initializer_list<at::Tensor> tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.to(at::kFloat));
  }
  return copies;
}

// What attention on the host asks for: LibTorch's fused, blocks, or widened_attention(). On meta
// it would take the plain way, whose weights are [B,H,S,S]. Left out is what each thread has while
// it works, as a plan knows no number of threads: at most 1.6 MB or, in blocks, some copies of a
// head's keys, which is below a thousandth of the presets' steps.
struct AttentionOnMeta : torch::autograd::Function<AttentionOnMeta> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& mask, bool is_widened) {
    context->saved_data["is_widened"] = is_widened;
    if (is_widened) {
      copies_in_fp32({q, k, v, q});  // and the result
    }
    at::Tensor bias = mask.value_or(at::Tensor());
    if (mask && mask->scalar_type() == at::kBool) {
      bias = at::empty(mask->sizes(), q.options());
    }
    const at::Tensor out = at::empty(q.sizes(), q.options());
    const at::Tensor log_sums =
        at::empty({q.size(0), q.size(1), q.size(2)}, q.options().dtype(at::kFloat));
    context->save_for_backward({q, k, v, bias, out, log_sums});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list /*gradients*/) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    if (context->saved_data["is_widened"].toBool()) {
      const at::Tensor &out = saved[4], &gradient = saved[4];
      copies_in_fp32({gradient, q, k, v, out, /*their gradients*/ q, k, v});
    }
    return {at::empty_like(q), at::empty_like(k), at::empty_like(v), at::Tensor(), at::Tensor()};
  }
};

// q [B,S,H,E], k and v [B,S,K,E] -> [B,S,H,E].
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::optional<at::Tensor>& mask, bool is_causal,
                           const ScoreRules& rules = {}) {
  const bool is_blocked = !mask && is_for_blocked_attention(q, k, is_causal);
  const bool is_widened = !mask && !is_blocked && is_for_widened_attention(q, k);
  if (q.is_meta()) {
    return AttentionOnMeta::apply(q, k, v, mask, is_widened);
  }
  const auto scale = rules.scale > 0 ? std::optional<double>(rules.scale) : std::nullopt;
  if (is_blocked) {
    return blocked_attention(q, k, v, is_causal, scale);
  }
  if (is_widened) {
    return widened_attention(q, k, v, is_causal, scale);
  }
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                          mask, /*dropout_p=*/0.0, is_causal, scale,
                                          /*enable_gqa=*/q.size(2) != k.size(2))
      .transpose(1, 2);
}

// [B,S,K,E] -> [B,S,K*times,E], each head `times` times in a row.
at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  const auto sizes = x.sizes();
  return x.unsqueeze(3)
      .expand({sizes[0], sizes[1], sizes[2], times, sizes[3]})
      .reshape({sizes[0], sizes[1], sizes[2] * times, sizes[3]});
}

// LibTorch's fused attention draws its dropout from the default generator, and caps no scores, so
// the weights are made here: [B,H,S,S].
at::Tensor mixed_by_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& mask, const AttentionDropout& dropout,
                            const ScoreRules& rules) {
  const int64_t times = q.size(2) / k.size(2);
  const at::Tensor keys = repeat_heads(k, times).permute({0, 2, 3, 1});  // [B,H,E,S]
  const at::Tensor values = repeat_heads(v, times).transpose(1, 2);
  const double scale =
      rules.scale > 0 ? rules.scale : 1 / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor scores = at::matmul(q.transpose(1, 2).mul(scale), keys);
  scores = soft_capped(scores, rules.cap);
  if (mask.defined() && mask.scalar_type() != at::kBool) {
    scores = scores + mask;
  } else if (mask.defined() || !rules.both_ways) {
    const at::Tensor seen =
        mask.defined() ? mask
                       : at::ones({q.size(1), q.size(1)}, q.options().dtype(at::kBool)).tril();
    scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  scores = scores.to(at::kFloat);  // _safe_softmax would do so, but its derivative knows no fp16
  const at::Tensor weights = at::_safe_softmax(scores, -1).to(q.scalar_type());
  return at::matmul(with_dropout(weights, dropout.keys, dropout.probability, dropout.part), values)
      .transpose(1, 2);
}

// q [B,S,H,E], k and v [B,S,K,E] -> [B,S,H,E]. mask undefined: causal, or both ways.
at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& mask, const AttentionDropout& dropout, const ScoreRules& rules) {
  if (dropout.is_on() || rules.cap > 0) {
    return mixed_by_weights(q, k, v, mask, dropout, rules);
  }
  return mask.defined() ? fused_attention(q, k, v, mask, /*is_causal=*/false, rules)
                        : fused_attention(q, k, v, std::nullopt, !rules.both_ways, rules);
}

// Within each sequence of a batch that is packed with them.
at::Tensor mixed_by_sequence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<int64_t>& boundaries,
                             const AttentionDropout& dropout, const ScoreRules& rules) {
  const auto one_row = [](const at::Tensor& x) {
    return x.reshape({1, x.size(0) * x.size(1), x.size(2), x.size(3)});
  };
  const at::Tensor queries = one_row(q);
  const at::Tensor keys = one_row(k);
  const at::Tensor values = one_row(v);
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i + 1 < boundaries.size(); ++i) {
    const int64_t begin = boundaries[i];
    const int64_t length = boundaries[i + 1] - begin;
    const int64_t row = begin / q.size(1);
    const AttentionDropout of_sequence{
        dropout.probability,
        dropout.is_on() ? keys_for(dropout.keys.narrow(0, row, 1), begin - row * q.size(1))
                        : at::Tensor(),
        dropout.part};
    parts.push_back(mixed(queries.narrow(1, begin, length), keys.narrow(1, begin, length),
                          values.narrow(1, begin, length),
                          mask_of_window(length, rules.window, q.device()), of_sequence, rules));
  }
  return at::cat(parts, 1).view(q.sizes());
}

void check_mask(const at::Tensor& mask, const at::Tensor& q) {
  const auto fits = [&](int64_t dim, int64_t size) {
    return mask.size(dim) == 1 || mask.size(dim) == size;
  };
  const bool has_type = mask.scalar_type() == at::kBool || mask.is_floating_point();
  FSDP2_CHECK(
      has_type && mask.dim() == 4 && fits(0, q.size(0)) && fits(1, q.size(2)) &&
          fits(2, q.size(1)) && mask.size(3) == q.size(1),
      Code::kInvalidArgument,
      "attention: expected a mask of booleans or numbers to add [{}, {} or 1, {}, {}], or integers "
      "[sequences + 1], got {} [{}]",
      q.size(0), q.size(2), q.size(1), q.size(1), c10::toString(mask.scalar_type()),
      fmt::join(mask.sizes(), ", "));
}

// The length of the sequences that `seen`, which fits them, is about, without what pads them;
// `padded` where it does not tell, as a causal sequence does not see what is behind it.
int64_t length_told_by(const c10::IValue& seen, int64_t batch, int64_t padded) {
  if (seen.isNone()) {
    return padded;
  }
  const at::Tensor& mask = seen.toTensor();
  const int64_t length =
      mask.dim() == 1 ? mask[-1].item<int64_t>() / batch : mask.size(mask.dim() - 1);
  return 0 < length && length < padded ? length : padded;
}

// What is seen by the heads of one part.
c10::IValue seen_by_part(const c10::IValue& seen, int64_t part, int64_t heads) {
  const bool has_heads =
      seen.isTensor() && seen.toTensor().dim() == 4 && seen.toTensor().size(1) > heads;
  return has_heads && (part + 1) * heads <= seen.toTensor().size(1)
             ? c10::IValue(seen.toTensor().narrow(1, part * heads, heads))
             : seen;
}

}  // namespace

void check_head_peers(const std::string& kind, int64_t heads, int64_t kv_heads, int64_t ranks) {
  FSDP2_CHECK(heads % ranks == 0, Code::kInvalidArgument,
              "{}: its {} heads cannot be shared by {} ranks: expected a number of ranks that "
              "divides them",
              kind, heads, ranks);
  FSDP2_CHECK(kv_heads % ranks == 0 || ranks % kv_heads == 0, Code::kInvalidArgument,
              "{}: its {} key-value heads cannot be shared by {} ranks: expected a number of ranks "
              "that divides them, or that they divide",
              kind, kv_heads, ranks);
}

ExchangedNumel exchanged_heads(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t ranks) {
  return {(heads + 2 * std::max(kv_heads, ranks)) * head_dim, heads * head_dim};
}

at::Tensor attend_with(const PeersPointer& peers, const at::Tensor& q, const at::Tensor& k,
                       const at::Tensor& v, const c10::IValue& seen,
                       const AttentionDropout& dropout, const ScoreRules& rules) {
  if (peers == nullptr) {
    return attend(q, k, v, seen, dropout, rules);
  }
  const int64_t times = std::max<int64_t>(1, peers->size() / k.size(2));
  const std::vector<at::Tensor> whole = share_heads(
      {q, times > 1 ? repeat_heads(k, times) : k, times > 1 ? repeat_heads(v, times) : v}, peers);
  const int64_t padded = whole[0].size(1);
  const int64_t length = length_told_by(seen, q.size(0), padded);
  const auto without_padding = [&](const at::Tensor& x) { return x.narrow(1, 0, length); };
  const at::Tensor mixed_values =
      attend(without_padding(whole[0]), without_padding(whole[1]), without_padding(whole[2]),
             seen_by_part(seen, peers->rank(), whole[0].size(2)),
             {dropout.probability, dropout.keys, peers->rank()}, rules);
  return share_sequence(length == padded
                            ? mixed_values
                            : at::constant_pad_nd(mixed_values, {0, 0, 0, 0, 0, padded - length}),
                        peers);
}

at::Tensor attend(const at::Tensor& q, at::Tensor k, at::Tensor v, const c10::IValue& seen,
                  const AttentionDropout& dropout, const ScoreRules& rules) {
  if (q.size(2) != k.size(2) && !fused_attention_groups_heads(q)) {
    const int64_t times = q.size(2) / k.size(2);
    k = repeat_heads(k, times);
    v = repeat_heads(v, times);
  }
  if (seen.isNone()) {
    return mixed(q, k, v, mask_of_window(q.size(1), rules.window, q.device()), dropout, rules);
  }
  const at::Tensor& mask = seen.toTensor();
  if (mask.dim() == 1) {
    return mixed_by_sequence(q, k, v, read_boundaries(mask, q.size(0), q.size(1)), dropout, rules);
  }
  check_mask(mask, q);
  return mixed(q, k, v, mask.is_floating_point() ? mask.to(q.scalar_type()) : mask, dropout, rules);
}

at::Tensor attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const at::Tensor& boundaries) {
  const std::vector<int64_t> ends = read_boundaries(boundaries, 1, q.size(0));
  std::vector<at::Tensor> parts;
  for (size_t first = 0; first + 1 < ends.size();) {
    const int64_t length = ends[first + 1] - ends[first];
    size_t last = first + 1;
    while (last + 1 < ends.size() && ends[last + 1] - ends[last] == length) {
      ++last;
    }
    const auto count = static_cast<int64_t>(last - first);
    const auto by_sequence = [&](const at::Tensor& x) {
      return x.narrow(0, ends[first], count * length).view({count, length, x.size(1), x.size(2)});
    };
    parts.push_back(fused_attention(by_sequence(q), by_sequence(k), by_sequence(v), std::nullopt,
                                    /*is_causal=*/false)
                        .reshape({count * length, q.size(1), q.size(2)}));
    first = last;
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

}  // namespace fsdp2::nn
