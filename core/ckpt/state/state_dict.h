// What a rank puts into a checkpoint or wants from one, whatever the format: tensors of which it
// holds a chunk (or all, or nothing), and plain Python values.
//
// All ranks list the same names in the same order with the same dtypes and global shapes; only
// chunks and values differ. If a rank holds several chunks of a tensor, all ranks list it so many
// times, one after the other, with empty chunks where there are none. Names are paths joined by
// dots, as Python's get_state_dict makes them:
//
//   model.<parameter>                         chunk of the parameter's layout
//   optim.state.<parameter>.exp_avg           the same chunk
//   optim.state.<parameter>.step              0 dims: whole on every rank
//   optim.param_groups.0.lr                   a value; path {"optim", "param_groups", 0, "lr"}
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/ckpt/value/python_value.h"
#include "core/ckpt/value/state_path.h"

namespace fsdp2::ckpt {

struct StateTensor {
  std::string name;
  StatePath path;
  std::vector<int64_t> shape;             // global
  std::vector<int64_t> offsets;           // of the local chunk, one a dim
  at::Tensor local;                       // without autograd; no elements: this rank holds nothing
  std::vector<std::string> aliases = {};  // other names that a checkpoint may have it under
};

struct StateObject {
  std::string name;
  StatePath path;
  PythonValue value;
};

struct StateDict {
  std::vector<StateTensor> tensors;
  std::vector<StateObject> objects;  // written once; equal on all ranks

  // The name follows from the path.
  void add_tensor(StatePath path, std::vector<int64_t> shape, std::vector<int64_t> offsets,
                  at::Tensor local);
  // One that this rank holds whole.
  void add_whole(StatePath path, at::Tensor tensor);
  void add_object(StatePath path, PythonValue value);

  // kWrongState if a tensor is deferred, or was freed since: its elements must not be touched.
  void check_has_memory() const;
};

}  // namespace fsdp2::ckpt
