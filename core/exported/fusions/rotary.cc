#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/exported/fusions/fits.h"
#include "core/exported/fusions/half_angles.h"
#include "core/exported/fusions/patterns.h"
#include "core/nn/layers/rotary_embedding.h"

namespace fsdp2::exported {

namespace {

constexpr size_t kMaxChain = 16;

// Operators that keep the last dim, and compute each element from one.
constexpr std::array<std::string_view, 7> kElementwise = {
    "alias.default", "cos.default",     "mul.Tensor",       "sin.default",
    "to.dtype",      "to.dtype_layout", "unsqueeze.default"};

// cos or sin [1 or B,1,S,E] of x [B,H,S,E].
bool are_angles_of(const at::Tensor& x, const at::Tensor& angles) {
  return angles.dim() == 4 && (angles.size(0) == 1 || angles.size(0) == x.size(0)) &&
         angles.size(1) == 1 && angles.size(2) == x.size(2) && angles.size(3) == x.size(3) &&
         have_loops(x, angles) && !angles.requires_grad();
}

at::Tensor compute_rotary(const std::vector<at::Tensor>& inputs, int64_t half, HalfAngles* halves) {
  const at::Tensor& x = inputs[0];
  const bool fits = x.dim() == 4 && x.size(3) == 2 * half && are_angles_of(x, inputs[1]) &&
                    are_angles_of(x, inputs[2]) && inputs[1].size(0) == inputs[2].size(0) &&
                    lies_in_order(x.transpose(1, 2));
  return !fits ? at::Tensor()
               : nn::rotate(x.transpose(1, 2), halves->of(inputs[1]), halves->of(inputs[2]))
                     .transpose(1, 2);
}

// x[..., from:to], of a tensor of 4 dims.
bool is_slice(const Operation& slice, int64_t from, std::optional<int64_t> to) {
  const c10::IValue* end = constant_at(slice, 3);
  return (is_int_at(slice, 1, 3) || is_int_at(slice, 1, -1)) && is_int_at(slice, 2, from) &&
         end != nullptr && end->isInt() && (to ? end->toInt() == *to : end->toInt() >= 2 * from) &&
         is_int_at(slice, 4, 1);
}

bool is_in_last_dim(const Operation& cat) { return is_int_at(cat, 1, -1); }

class RotaryMatcher {
 public:
  RotaryMatcher(const Dataflow& flow, std::shared_ptr<HalfAngles> halves)
      : flow_(flow), halves_(std::move(halves)) {}

  // x * cos + turned * sin.
  std::optional<Fusion> match(const Operation& last, const Operation& straight,
                              const Operation& across) {
    for (const auto& [x, cos] : either_order(straight)) {
      for (const auto& [turned, sin] : either_order(across)) {
        const auto half = match_turned(turned, x);
        if (half && has_equal_halves(cos) && has_equal_halves(sin)) {
          return fusion({&last, &straight, &across}, {x, cos, sin}, *half);
        }
        nodes_.clear();
        relied_on_.clear();
      }
    }
    return std::nullopt;
  }

 private:
  // cat([-x[..., half:], x[..., :half]], -1): half.
  std::optional<int64_t> match_turned(ValueId turned, ValueId x) {
    const Operation* cat = flow_.maker(turned, "cat.default");
    if (cat == nullptr || !(is_in_last_dim(*cat) || is_int_at(*cat, 1, 3))) {
      return std::nullopt;
    }
    const std::vector<ValueId>& parts = cat->inputs[0].argument.values;
    const Operation* negation = parts.size() == 2 ? flow_.maker(parts[0], "neg.default") : nullptr;
    const Operation* first = parts.size() == 2 ? flow_.maker(parts[1], "slice.Tensor") : nullptr;
    const Operation* second =
        negation == nullptr ? nullptr : flow_.maker(tensor_at(*negation, 0), "slice.Tensor");
    if (first == nullptr || second == nullptr || tensor_at(*first, 0) != x ||
        tensor_at(*second, 0) != x) {
      return std::nullopt;
    }
    const c10::IValue* half = constant_at(*second, 2);
    if (half == nullptr || !half->isInt() || half->toInt() <= 0 ||
        !is_slice(*first, 0, half->toInt()) || !is_slice(*second, half->toInt(), std::nullopt)) {
      return std::nullopt;
    }
    for (const Operation* operation : {cat, negation, first, second}) {
      nodes_.push_back(flow_.node_of(*operation));
    }
    return half->toInt();
  }

  // Whether it is computed, element by element, from a tensor that is there twice.
  bool has_equal_halves(ValueId value) {
    for (size_t i = 0; i < kMaxChain; ++i) {
      const Operation* maker = flow_.maker(value);
      if (maker == nullptr) {
        return false;
      }
      relied_on_.push_back(value);
      if (is_operator(*maker, "cat.default")) {
        const std::vector<ValueId>& parts = maker->inputs[0].argument.values;
        return parts.size() == 2 && parts[0] == parts[1] && is_in_last_dim(*maker);
      }
      const bool is_elementwise =
          std::any_of(kElementwise.begin(), kElementwise.end(),
                      [&](std::string_view name) { return is_operator(*maker, name); });
      const bool has_one_tensor = !is_operator(*maker, "mul.Tensor") || number_at(*maker, 1);
      if (!is_elementwise || !has_one_tensor) {
        return false;
      }
      value = tensor_at(*maker, 0);
    }
    return false;
  }

  std::optional<Fusion> fusion(std::initializer_list<const Operation*> outer,
                               std::vector<ValueId> inputs, int64_t half) {
    for (const Operation* operation : outer) {
      nodes_.push_back(flow_.node_of(*operation));
    }
    std::sort(nodes_.begin(), nodes_.end());
    return Fusion{std::move(nodes_), std::move(inputs), std::move(relied_on_),
                  [half, halves = halves_](const auto& tensors) {
                    return compute_rotary(tensors, half, halves.get());
                  }};
  }

  const Dataflow& flow_;
  const std::shared_ptr<HalfAngles> halves_;
  std::vector<int32_t> nodes_;
  std::vector<ValueId> relied_on_;
};

std::optional<Fusion> match_rotary(const Dataflow& flow, const Operation& last,
                                   const std::shared_ptr<HalfAngles>& halves) {
  if (number_at(last, 2) != 1) {
    return std::nullopt;
  }
  for (const auto& [one, other] : either_order(last)) {
    const Operation* straight = flow.maker(one, "mul.Tensor");
    const Operation* across = flow.maker(other, "mul.Tensor");
    if (straight == nullptr || across == nullptr) {
      return std::nullopt;
    }
    if (auto found = RotaryMatcher(flow, halves).match(last, *straight, *across)) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

Match rotary_matches() {
  return [halves = std::make_shared<HalfAngles>()](const Dataflow& flow, const Operation& last) {
    return match_rotary(flow, last, halves);
  };
}

}  // namespace fsdp2::exported
