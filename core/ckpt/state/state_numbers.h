// Finds the parameters of an optimizer's state that is listed by number, as by Python's
// optimizer.state_dict(). The numbers go from group to group, and in each follow the order of the
// model's parameters. Which parameters a group has is not said. Their shapes tell it if no two
// groups have one in common, as where weight decay is for matrices alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ckpt/state/state_source.h"

namespace fsdp2::ckpt {

class StateNumbers {
 public:
  struct Place {
    int64_t number;
    size_t group;
  };

  // optimizer_prefix: what "state.0.exp_avg" and "param_groups.0.params" begin with.
  StateNumbers(const StateSource& source, const std::string& optimizer_prefix);

  // How many parameters the groups list; 0 if they say nothing of it.
  size_t count() const;

  // Where the state of each is. `parameters`: the tensors of those that the optimizer was given, in
  // the model's order, nullptr for one that the checkpoint lacks. Errors: kCorruptData if their
  // number is another one than count(); kUnsupported if nothing tells whose state is whose.
  std::vector<Place> places(const std::vector<const StateEntry*>& parameters) const;

 private:
  using Shape = std::vector<int64_t>;

  void read_groups(const std::string& start);
  void read_shapes(const std::string& start);
  std::map<Shape, size_t> groups_by_shape() const;
  [[noreturn]] void fail_to_tell() const;

  const StateSource& source_;
  std::vector<std::vector<int64_t>> groups_;  // numbers, as each lists them
  std::map<int64_t, Shape> shapes_;           // of the state, by number
};

}  // namespace fsdp2::ckpt
