// Modules of callers: parameters and children with names, and a forward that is a function.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::nn {

// What a parameter begins with.
struct ParameterInit {
  enum class Kind { kNormal, kZeros, kOnes };
  Kind kind = Kind::kNormal;
  double std = 0.02;  // of kNormal, whose mean is 0
};

class CustomModule final : public Module {
 public:
  using Forward = std::function<c10::IValue(CustomModule& self, Values inputs)>;

  CustomModule(std::string kind, Forward forward)
      : Module(std::move(kind)), forward_(std::move(forward)) {}

  // Errors of both: kInvalidArgument for a name that is empty, has a dot or is taken.
  void add_parameter(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype,
                     ParameterInit init);
  void add_child(const std::string& name, const std::shared_ptr<CustomModule>& child);

  // Its own parameters as they are now, in the order in which they were added.
  std::vector<at::Tensor> own_parameters() const { return parameters(/*recurse=*/false); }
  // REQUIRES: it has such a parameter.
  const ParameterInit& init_of(const std::string& name) const { return inits_.at(name); }

 protected:
  c10::IValue forward(Values inputs) override { return forward_(*this, std::move(inputs)); }

 private:
  void check_name(const std::string& name) const;

  const Forward forward_;
  std::unordered_map<std::string, ParameterInit> inits_;
};

// The initial values of a tree of custom modules. As those of SeededInit, they depend on the seed,
// the parameter's name and the element's index and on nothing else.
class CustomInit final : public ParameterSource {
 public:
  CustomInit(std::shared_ptr<const CustomModule> root, uint64_t seed)
      : root_(std::move(root)), seed_(seed) {}

  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  const std::shared_ptr<const CustomModule> root_;
  const uint64_t seed_;
};

}  // namespace fsdp2::nn
