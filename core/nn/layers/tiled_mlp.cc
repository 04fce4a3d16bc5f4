#include "core/nn/layers/tiled_mlp.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/nn/kernels/linear_product.h"
#include "core/nn/layers/layers.h"

namespace fsdp2::nn {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// body(first row, rows), in order.
template <typename Body>
void each_tile(int64_t rows, int64_t tiles, const Body& body) {
  const int64_t most = rows / tiles + (rows % tiles == 0 ? 0 : 1);
  for (int64_t row = 0; row < rows; row += most) {
    body(row, std::min(most, rows - row));
  }
}

at::Tensor in_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// A parameter's gradient, summed over tiles. Without a parameter, or where nobody wants it, it
// stays undefined.
class TileSum {
 public:
  TileSum(const at::Tensor& parameter, bool is_wanted, bool has_rows) {
    if (is_wanted) {
      dtype_ = parameter.scalar_type();
      const auto options = parameter.options().dtype(at::toOpMathType(dtype_));
      sum_ =
          has_rows ? at::empty(parameter.sizes(), options) : at::zeros(parameter.sizes(), options);
    }
  }

  bool is_wanted() const { return sum_.defined(); }

  // a [m,n] b [m,k], of a weight [n,k].
  void add_product(const at::Tensor& a, const at::Tensor& b) {
    add_product_tn(sum_, a, b, is_first_ ? 0 : 1);
    is_first_ = false;
  }

  void add_rows(const at::Tensor& rows) {
    const at::Tensor sum = rows.sum(0, /*keepdim=*/false, sum_.scalar_type());
    is_first_ ? sum_.copy_(sum) : sum_.add_(sum);
    is_first_ = false;
  }

  at::Tensor take() { return is_wanted() ? sum_.to(dtype_) : at::Tensor(); }

 private:
  at::Tensor sum_;
  at::ScalarType dtype_ = at::kFloat;
  bool is_first_ = true;
};

struct TileSums {
  TileSum gate, up, down, gate_bias, up_bias, down_bias;
};

class Backward {
 public:
  // x and dy in rows.
  Backward(const GatedMlpWeights& weights, Activation activation, const at::Tensor& x,
           const at::Tensor& dy, TileSums& sums, const at::Tensor& dx)
      : weights_(weights), activation_(activation), x_(x), dy_(dy), sums_(sums), dx_(dx) {}

  void run_tile(int64_t row, int64_t rows) {
    const at::Tensor x = x_.narrow(0, row, rows);
    const at::Tensor dy = dy_.narrow(0, row, rows);
    const at::Tensor gate = linear_product(x, weights_.gate, weights_.gate_bias);
    const at::Tensor up = linear_product(x, weights_.up, weights_.up_bias);
    if (sums_.down.is_wanted()) {
      sums_.down.add_product(dy, gated(gate, up, activation_));
    }
    if (sums_.down_bias.is_wanted()) {
      sums_.down_bias.add_rows(dy);
    }
    if (!needs_inner()) {
      return;
    }
    const auto [dgate, dup] =
        gated_gradients(product_nt(dy, weights_.down.t()), gate, up, activation_);
    add_inner(sums_.gate, sums_.gate_bias, dgate, x);
    add_inner(sums_.up, sums_.up_bias, dup, x);
    if (dx_.defined()) {
      dx_.narrow(0, row, rows)
          .copy_(product_nt(dgate, weights_.gate.t()).add_(product_nt(dup, weights_.up.t())));
    }
  }

 private:
  bool needs_inner() const {
    return dx_.defined() || sums_.gate.is_wanted() || sums_.up.is_wanted() ||
           sums_.gate_bias.is_wanted() || sums_.up_bias.is_wanted();
  }

  static void add_inner(TileSum& weight, TileSum& bias, const at::Tensor& gradient,
                        const at::Tensor& x) {
    if (weight.is_wanted()) {
      weight.add_product(gradient, x);
    }
    if (bias.is_wanted()) {
      bias.add_rows(gradient);
    }
  }

  const GatedMlpWeights& weights_;
  const Activation activation_;
  const at::Tensor x_, dy_;
  TileSums& sums_;
  const at::Tensor dx_;  // undefined: not wanted
};

struct TiledGatedMlp : torch::autograd::Function<TiledGatedMlp> {
  using Bias = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& gate,
                            const at::Tensor& up, const at::Tensor& down, const Bias& gate_bias,
                            const Bias& up_bias, const Bias& down_bias, Activation activation,
                            int64_t tiles) {
    const GatedMlpWeights w = {gate,
                               up,
                               down,
                               gate_bias.value_or(at::Tensor()),
                               up_bias.value_or(at::Tensor()),
                               down_bias.value_or(at::Tensor())};
    context->save_for_backward({x, w.gate, w.up, w.down, w.gate_bias, w.up_bias, w.down_bias});
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["tiles"] = tiles;
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = down.size(0);
    const at::Tensor rows = in_rows(x);
    const at::Tensor y = at::empty({rows.size(0), down.size(0)}, x.options());
    each_tile(rows.size(0), tiles, [&](int64_t row, int64_t count) {
      const at::Tensor part = rows.narrow(0, row, count);
      const at::Tensor inner = gated(linear_product(part, w.gate, w.gate_bias),
                                     linear_product(part, w.up, w.up_bias), activation);
      y.narrow(0, row, count).copy_(linear_product(inner, w.down, w.down_bias));
    });
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    refuse_second_derivatives("an MLP in tiles");
    const auto saved = context->get_saved_variables();
    const GatedMlpWeights weights = {saved[1], saved[2], saved[3], saved[4], saved[5], saved[6]};
    const at::Tensor x = in_rows(saved[0]);
    const at::Tensor dx =
        context->needs_input_grad(0) ? at::empty(x.sizes(), x.options()) : at::Tensor();
    const auto sum_of = [&](size_t input) {
      const bool is_wanted = saved[input].defined() && context->needs_input_grad(input);
      return TileSum(saved[input], is_wanted, x.size(0) > 0);
    };
    TileSums sums = {sum_of(1), sum_of(2), sum_of(3), sum_of(4), sum_of(5), sum_of(6)};
    const auto activation = static_cast<Activation>(context->saved_data["activation"].toInt());
    Backward tiles(weights, activation, x, in_rows(gradients[0]), sums, dx);
    each_tile(x.size(0), context->saved_data["tiles"].toInt(),
              [&](int64_t row, int64_t count) { tiles.run_tile(row, count); });
    return {dx.defined() ? dx.view(saved[0].sizes()) : dx,
            sums.gate.take(),
            sums.up.take(),
            sums.down.take(),
            sums.gate_bias.take(),
            sums.up_bias.take(),
            sums.down_bias.take(),
            {},
            {}};
  }
};

std::optional<at::Tensor> if_defined(const at::Tensor& bias) {
  return bias.defined() ? std::optional<at::Tensor>(bias) : std::nullopt;
}

}  // namespace

at::Tensor tiled_gated_mlp(const at::Tensor& x, const GatedMlpWeights& weights,
                           Activation activation, int64_t tiles) {
  FSDP2_CHECK(x.dim() >= 1 && x.size(-1) == weights.gate.size(1) &&
                  x.scalar_type() == weights.gate.scalar_type(),
              Code::kInvalidArgument,
              "an MLP in tiles: expected hidden states [..., {}] in the weights' dtype {}, got "
              "{} values in the last of {} dims, of dtype {}",
              weights.gate.size(1), c10::toString(weights.gate.scalar_type()),
              x.dim() >= 1 ? x.size(-1) : 0, x.dim(), c10::toString(x.scalar_type()));
  return TiledGatedMlp::apply(x, weights.gate, weights.up, weights.down,
                              if_defined(weights.gate_bias), if_defined(weights.up_bias),
                              if_defined(weights.down_bias), activation, tiles);
}

int64_t tile_mlps(Module& root, int64_t tiles) {
  FSDP2_CHECK(tiles >= 1, Code::kInvalidArgument, "MLPs in tiles: expected tiles >= 1, found {}",
              tiles);
  std::vector<GatedMlp*> mlps;
  for (const auto& module : root.modules()) {
    if (auto* mlp = dynamic_cast<GatedMlp*>(module.get())) {
      mlps.push_back(mlp);
    }
  }
  FSDP2_CHECK(!mlps.empty(), Code::kNotFound,
              "MLPs in tiles: expected a model with gated MLPs (gate_proj, up_proj, down_proj), "
              "which {} has not; leave tiles out",
              root.kind());
  for (GatedMlp* mlp : mlps) {
    mlp->set_tiles(tiles);
  }
  return static_cast<int64_t>(mlps.size());
}

}  // namespace fsdp2::nn
