// Modules of callers: parameters, buffers and children with names, and a forward that is a
// function.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/nn/buffers.h"
#include "core/nn/module.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::nn {

// What a parameter begins with.
struct ParameterInit {
  enum class Kind { kNormal, kZeros, kOnes };
  Kind kind = Kind::kNormal;
  double std = 0.02;  // of kNormal, whose mean is 0
};

class CustomModule final : public Module, public TransientBuffers {
 public:
  using Forward = std::function<c10::IValue(CustomModule& self, Values inputs)>;

  CustomModule(std::string kind, Forward forward)
      : Module(std::move(kind)), forward_(std::move(forward)) {}

  // Errors of all three: kInvalidArgument for a name that is empty, has a dot or is taken.
  void add_parameter(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype,
                     ParameterInit init);
  // Keeps the tensor itself, for which no gradient is recorded.
  void add_buffer(const std::string& name, const at::Tensor& tensor, bool is_persistent);
  void add_child(const std::string& name, const std::shared_ptr<CustomModule>& child);

  // The parameter at the dotted name `name`, at or below this module, becomes the one at `other`:
  // one parameter with two names, and what `other` begins with. Errors, with nothing changed:
  // kNotFound; kInvalidArgument unless they have one shape and dtype.
  void tie_parameter(const std::string& name, const std::string& other);

  // Its own as they are now, in the order in which they were added.
  std::vector<at::Tensor> own_parameters() const { return parameters(/*recurse=*/false); }
  std::vector<at::Tensor> own_buffers() const { return buffers(/*recurse=*/false); }
  // REQUIRES: it has such a parameter.
  const ParameterInit& init_of(const std::string& name) const { return inits_.at(name); }

  bool is_transient(const std::string& name) const override { return transient_.count(name) == 1; }

 protected:
  c10::IValue forward(Values inputs) override { return forward_(*this, std::move(inputs)); }

 private:
  void check_name(const std::string& name) const;

  const Forward forward_;
  std::unordered_map<std::string, ParameterInit> inits_;
  std::unordered_set<std::string> transient_;  // names of buffers
};

// The initial values of a tree of custom modules. As those of SeededInit, they depend on the seed,
// the parameter's name and the element's index and on nothing else.
class CustomInit final : public ParameterSource {
 public:
  CustomInit(std::shared_ptr<CustomModule> root, uint64_t seed)
      : root_(std::move(root)), seed_(seed) {}

  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  const std::shared_ptr<CustomModule> root_;
  const uint64_t seed_;
};

}  // namespace fsdp2::nn
