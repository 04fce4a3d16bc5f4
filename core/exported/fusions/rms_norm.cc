#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/exported/fusions/fits.h"
#include "core/exported/fusions/patterns.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::exported {

namespace {

constexpr size_t kMostReaders = 4;  // with which a norm is looked for

struct NormOptions {
  double eps = 0;
  bool widens = false;                 // x to fp32, by a node of its own
  at::ScalarType narrow = at::kFloat;  // what the weight multiplies
};

// x in fp32 or widened to it: the nodes compute in fp32 what the loops compute so, too.
at::Tensor compute(const std::vector<at::Tensor>& inputs, const NormOptions& options) {
  const at::Tensor& x = inputs[0];
  const at::Tensor& weight = inputs[1];
  const bool fits = have_loops(x, weight) && x.scalar_type() == options.narrow &&
                    (options.widens || x.scalar_type() == at::kFloat) && x.dim() >= 1 &&
                    weight.dim() == 1 && weight.size(0) == x.size(-1) && lies_in_order(x);
  return fits ? nn::rms_norm(x, weight, options.eps) : at::Tensor();
}

class Matcher {
 public:
  explicit Matcher(const Dataflow& flow) : flow_(flow) {}

  // last: weight * normed.
  std::optional<Fusion> match(const Operation& last, ValueId weight, ValueId normed) {
    add(last);
    if (const Operation* narrowing = flow_.maker(normed, "to.dtype")) {
      const auto dtype = plain_dtype(*narrowing);
      if (!dtype) {
        return std::nullopt;
      }
      options_.narrow = *dtype;
      add(*narrowing);
      normed = tensor_at(*narrowing, 0);
      add_checks(normed);
    }
    const Operation* scaling = flow_.maker(normed, "mul.Tensor");
    if (scaling == nullptr) {
      return std::nullopt;
    }
    add(*scaling);
    for (const auto& [x, factor] : either_order(*scaling)) {
      if (const auto squared = match_factor(factor); squared == x && x != kNoValue) {
        return fusion(widened_from(x), weight);
      }
    }
    return std::nullopt;
  }

 private:
  // rsqrt(mean(x^2, -1) + eps): x. Nodes are added when all are there.
  std::optional<ValueId> match_factor(ValueId factor) {
    const Operation* root = flow_.maker(factor, "rsqrt.default");
    const Operation* sum =
        root == nullptr ? nullptr : flow_.maker(tensor_at(*root, 0), "add.Tensor");
    const Operation* mean = sum == nullptr ? nullptr : flow_.maker(tensor_at(*sum, 0), "mean.dim");
    const Operation* square =
        mean == nullptr ? nullptr : flow_.maker(tensor_at(*mean, 0), "pow.Tensor_Scalar");
    if (square == nullptr || number_at(*square, 1) != 2 || !is_over_rows(*mean) ||
        number_at(*sum, 2) != 1) {
      return std::nullopt;
    }
    const std::optional<double> eps = number_at(*sum, 1);
    if (!eps) {
      return std::nullopt;
    }
    options_.eps = *eps;
    for (const Operation* operation : {root, sum, mean, square}) {
      add(*operation);
    }
    return tensor_at(*square, 0);
  }

  // mean(x, [-1], keepdim=True)
  static bool is_over_rows(const Operation& mean) {
    const c10::IValue* dims = constant_at(mean, 1);
    const c10::IValue* keeps = constant_at(mean, 2);
    const c10::IValue* dtype = constant_at(mean, 3);
    return dims != nullptr && dims->isIntList() &&
           dims->toIntVector() == std::vector<int64_t>{-1} && keeps != nullptr && keeps->isBool() &&
           keeps->toBool() && dtype != nullptr && dtype->isNone();
  }

  // The dtype of a `to(dtype)` without a memory format.
  static std::optional<at::ScalarType> plain_dtype(const Operation& cast) {
    const c10::IValue* dtype = constant_at(cast, 1);
    const c10::IValue* format = constant_at(cast, 4);
    const bool is_plain =
        dtype != nullptr && dtype->isInt() && format != nullptr && format->isNone();
    return is_plain ? std::optional(static_cast<at::ScalarType>(dtype->toInt())) : std::nullopt;
  }

  // What x was before a node made it fp32, if only the norm reads that.
  ValueId widened_from(ValueId x) {
    const Operation* widening = flow_.maker(x, "to.dtype");
    if (widening == nullptr || plain_dtype(*widening) != at::kFloat || flow_.is_result(x) ||
        flow_.readers(x).size() != 2) {
      return x;
    }
    options_.widens = true;
    add(*widening);
    return tensor_at(*widening, 0);
  }

  // Assertions that it is fp32, which it is wherever the loops run.
  void add_checks(ValueId value) {
    const std::vector<int32_t>& readers = flow_.readers(value);
    for (size_t i = 0; i < std::min(readers.size(), kMostReaders); ++i) {
      const int32_t node = readers[i];
      if (flow_.operation(node).only_dtype == at::kFloat) {
        nodes_.push_back(node);
      }
    }
  }

  void add(const Operation& operation) { nodes_.push_back(flow_.node_of(operation)); }

  std::optional<Fusion> fusion(ValueId x, ValueId weight) {
    std::sort(nodes_.begin(), nodes_.end());
    return Fusion{std::move(nodes_), {x, weight}, {}, [options = options_](const auto& inputs) {
                    return compute(inputs, options);
                  }};
  }

  const Dataflow& flow_;
  std::vector<int32_t> nodes_;
  NormOptions options_;
};

}  // namespace

std::optional<Fusion> match_rms_norm(const Dataflow& flow, const Operation& last) {
  for (const auto& [weight, normed] : either_order(last)) {
    if (weight == kNoValue || normed == kNoValue) {
      continue;
    }
    if (auto found = Matcher(flow).match(last, weight, normed)) {
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace fsdp2::exported
