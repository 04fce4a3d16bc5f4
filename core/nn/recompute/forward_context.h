// What a forward depends on besides its inputs and parameters: random generators and autocast.
// Taken before a forward runs, put back when it runs again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

namespace fsdp2::nn {

class ForwardContext {
 public:
  // Takes this thread's context as it is now: autocast on the CPU and the given devices, the
  // default generators of both, and `generators`.
  ForwardContext(const std::vector<c10::Device>& devices,
                 const std::vector<at::Generator>& generators);

  // The forward is about to draw from another generator, whose state is still what it has been.
  void add_generator(const at::Generator& generator);

  // The forward is over: forgets the generators that nothing was drawn from (5 KB on the CPU), so
  // that they are left alone later.
  void forget_unused_generators();

  // While it lives, this thread is in the context; then everything is as it was.
  class Restored {
   public:
    explicit Restored(const ForwardContext& context);
    ~Restored();
    Restored(const Restored&) = delete;
    Restored& operator=(const Restored&) = delete;

   private:
    const ForwardContext& context_;
    std::vector<at::Tensor> generators_;  // states by context_.generators_
    std::vector<bool> autocast_;          // enabled, by context_.autocast_
    std::vector<at::ScalarType> autocast_dtypes_;
    bool autocast_cache_;
  };

 private:
  struct GeneratorState {
    at::Generator generator;
    at::Tensor state;
  };
  struct Autocast {
    c10::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };

  std::vector<GeneratorState> generators_;
  std::vector<Autocast> autocast_;
};

}  // namespace fsdp2::nn
