#include "core/nn/layers/dropout.h"

#include <cmath>

#include "core/nn/random/row_keys.h"
#include "core/nn/stock/layer_makers.h"

namespace fsdp2::nn {

namespace {

at::Tensor dropped(CustomModule& self, const at::Tensor& x, double probability) {
  const at::Tensor keys = draw_keys_of(self, x);
  return with_dropout(x.reshape({keys.size(0), -1}), keys, probability).view(x.sizes());
}

}  // namespace

double read_dropout(const LayerOptions& options, const char* name, double value) {
  return options.number(name, 0, std::nextafter(1.0, 0.0), "a number from 0 to below 1", value);
}

at::Tensor draw_keys_of(CustomModule& self, const at::Tensor& x) {
  const at::Tensor known = self.rows();
  const at::Tensor rows = known.defined() ? known : hash_rows(x);
  const bool is_by_row = x.dim() >= 1 && x.size(0) % rows.size(0) == 0;
  return draw_keys(self.generator(), is_by_row ? rows : rows.sum(0, /*keepdim=*/true, at::kInt));
}

Layer make_dropout(const LayerOptions& options, const LayerSettings& settings) {
  const double probability = read_dropout(options, "p", 0.5);
  Layer layer = new_layer(
      options.kind(), settings, {1, 1}, [probability](CustomModule& self, const Values& inputs) {
        const at::Tensor& x = inputs[0].toTensor();
        const bool keeps_all = !self.is_training() || probability == 0 || x.numel() == 0;
        return c10::IValue(keeps_all ? x : dropped(self, x, probability));
      });
  layer->draw_random_numbers();
  return layer;
}

}  // namespace fsdp2::nn
