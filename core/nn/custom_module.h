// Modules that callers put together: parameters, buffers and children with names, and a forward
// that is a function.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/nn/buffers.h"
#include "core/nn/module.h"
#include "core/nn/own_generator.h"
#include "core/nn/parameter_reads.h"
#include "core/nn/parameter_source.h"

namespace fsdp2::nn {

// What a parameter begins with.
struct ParameterInit {
  enum class Kind { kNormal, kUniform, kZeros, kOnes };
  Kind kind = Kind::kNormal;
  double std = 0.02;      // of kNormal, whose mean is 0
  double bound = 0;       // of kUniform: from -bound to bound
  int64_t zero_row = -1;  // of zeros whatever the kind is; -1: none
};

struct CustomModuleOptions {
  uint64_t seed = 0;  // of the numbers that layers draw in forward (dropout)
  // What messages call a parameter whose memory a unit has freed.
  std::function<std::string(const at::Tensor&)> title_of_parameter;
  InputCount inputs;
  // Whether its forward is ours, and does nothing that only the host would see: what a device has
  // recorded of it is all of it. A caller's function may do anything.
  bool is_stock = false;
};

class CustomModule final : public Module,
                           public TransientBuffers,
                           public OwnGenerator,
                           public UntrackedReads {
 public:
  using Forward = std::function<c10::IValue(CustomModule& self, Values inputs)>;

  CustomModule(std::string kind, CustomModuleOptions options, Forward forward);

  // Errors of all three: kInvalidArgument for a name that is empty, has a dot or is taken.
  void add_parameter(const std::string& name, at::IntArrayRef shape, at::ScalarType dtype,
                     ParameterInit init);
  // Keeps the tensor itself, for which no gradient is recorded.
  void add_buffer(const std::string& name, const at::Tensor& tensor, bool is_persistent);
  // The child and all below it draw from this module's generator from now on.
  void add_child(const std::string& name, const std::shared_ptr<CustomModule>& child);

  // The parameter at the dotted name `name`, at or below this module, becomes the one at `other`:
  // one parameter with two names, and what `other` begins with. Errors, with nothing changed:
  // kNotFound; kInvalidArgument unless they have one shape and dtype.
  void tie_parameter(const std::string& name, const std::string& other);

  // Its own as they are now, in the order in which they were added. Parameters where they lie: of
  // torch::nn::Module's own list, each forward would first make a table of their names. It does
  // not show its list of buffers.
  const torch::OrderedDict<std::string, at::Tensor>& own_parameters() const { return parameters_; }
  std::vector<at::Tensor> own_buffers() const;
  // REQUIRES: it has such a parameter.
  const ParameterInit& init_of(const std::string& name) const { return inits_.at(name); }

  // One of its own as it is now; undefined if there is none.
  at::Tensor own_parameter(const std::string& name) const;

  // Says that forward draws from `generator`, whose state then belongs to the model.
  void draw_random_numbers();
  at::Generator& generator() { return random_->generator; }
  std::optional<at::Generator> own_generator() const override;
  // Those of the first input of the whole, whose forward is under way.
  at::Tensor rows() const override { return random_->rows; }
  void set_rows(const at::Tensor& rows) override { random_->rows = rows; }

  InputCount input_count() const override { return options_.inputs; }
  bool is_stock() const { return options_.is_stock; }
  bool may_read_untracked() const override { return !is_stock(); }
  bool is_transient(const std::string& name) const override { return transient_.count(name) == 1; }

 protected:
  c10::IValue forward(Values inputs) override;

 private:
  void check_name(const std::string& name) const;
  void check_parameters_have_memory() const;
  void become_part(const CustomModule& parent);

  const CustomModuleOptions options_;
  const Forward forward_;
  struct RandomState {
    at::Generator generator;
    at::Tensor rows;
    bool is_drawn_from = false;  // in some forward of the tree
  };
  std::shared_ptr<RandomState> random_;  // of the whole tree
  bool draws_ = false;
  bool is_part_ = false;
  bool has_buffers_ = false;
  std::unordered_map<std::string, ParameterInit> inits_;
  std::unordered_set<std::string> transient_;  // names of buffers
};

// The initial values of a tree of custom modules. As those of SeededInit, they depend on the seed,
// the parameter's name and the element's index and on nothing else.
class CustomInit final : public ParameterSource {
 public:
  CustomInit(std::shared_ptr<CustomModule> root, uint64_t seed)
      : root_(std::move(root)), seed_(seed) {}

  std::string mark_of(const std::string& name) const override;
  void read(const std::string& name, at::IntArrayRef shape, int64_t first_row,
            at::Tensor out) override;

 private:
  const std::shared_ptr<CustomModule> root_;
  const uint64_t seed_;
};

}  // namespace fsdp2::nn
