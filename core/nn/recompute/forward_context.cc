#include "core/nn/recompute/forward_context.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/equal.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/nn/meta_tensor.h"
#include "core/nn/random/generator_state.h"
#include "core/nn/random/recorded_draws.h"

namespace fsdp2::nn {

ForwardContext::ForwardContext(const std::vector<c10::Device>& devices,
                               const std::vector<at::Generator>& generators) {
  std::vector<at::Generator> all{at::globalContext().defaultGenerator(at::kCPU)};
  const auto add_autocast = [&](c10::DeviceType device) {
    autocast_.push_back({device, at::autocast::is_autocast_enabled(device),
                         at::autocast::get_autocast_dtype(device)});
  };
  add_autocast(at::kCPU);
  for (const c10::Device& device : devices) {
    if (!acts_as_host(device)) {
      if (is_recording(device)) {
        // Its state cannot be read now, and need not be where nobody draws from it.
        FSDP2_CHECK(!has_drawn_on_device(), Code::kUnsupported,
                    "a forward that runs again in backward draws from the device's own generator");
      } else {
        all.push_back(at::globalContext().defaultGenerator(device));
      }
      add_autocast(device.type());
    }
  }
  all.insert(all.end(), generators.begin(), generators.end());
  for (const at::Generator& generator : all) {
    generators_.push_back({generator, state_of(generator)});
  }
}

void ForwardContext::add_generator(const at::Generator& generator) {
  const auto is_known = [&](const GeneratorState& entry) { return entry.generator == generator; };
  if (std::none_of(generators_.begin(), generators_.end(), is_known)) {
    generators_.push_back({generator, state_of(generator)});
  }
}

void ForwardContext::forget_unused_generators() {
  const auto is_unused = [](const GeneratorState& entry) {
    const bool is_same = at::equal(entry.state, state_of(entry.generator));
    if (!is_same && !entry.generator.device().is_cpu()) {
      note_device_draw();
    }
    return is_same;
  };
  generators_.erase(std::remove_if(generators_.begin(), generators_.end(), is_unused),
                    generators_.end());
}

ForwardContext::Restored::Restored(const ForwardContext& context)
    : context_(context), autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
  for (const GeneratorState& entry : context.generators_) {
    generators_.push_back(state_of(entry.generator));
  }
  for (const Autocast& entry : context.autocast_) {
    autocast_.push_back(at::autocast::is_autocast_enabled(entry.device));
    autocast_dtypes_.push_back(at::autocast::get_autocast_dtype(entry.device));
    at::autocast::set_autocast_dtype(entry.device, entry.dtype);
    at::autocast::set_autocast_enabled(entry.device, entry.enabled);
  }
  // The cache is emptied where autocast ends, and it may have ended long ago.
  at::autocast::set_autocast_cache_enabled(false);
  for (const GeneratorState& entry : context.generators_) {
    set_state(entry.generator, entry.state);
  }
}

ForwardContext::Restored::~Restored() {
  for (size_t i = 0; i < generators_.size(); ++i) {
    set_state(context_.generators_[i].generator, generators_[i]);
  }
  for (size_t i = 0; i < autocast_.size(); ++i) {
    at::autocast::set_autocast_dtype(context_.autocast_[i].device, autocast_dtypes_[i]);
    at::autocast::set_autocast_enabled(context_.autocast_[i].device, autocast_[i]);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
}

}  // namespace fsdp2::nn
