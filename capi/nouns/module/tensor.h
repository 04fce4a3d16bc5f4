// Tensors that cross the C ABI.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "capi/object.h"
#include "include/fsdp2/base.h"

namespace fsdp2::capi {

// The arguments `shape` and `n_dims`; sizes may still be negative.
std::vector<int64_t> read_shape(const int64_t* shape, size_t n_dims);

// Those of a TensorObject.
using Producers = std::vector<Producer>;

// A new handle.
fsdp2_tensor give_tensor(at::Tensor tensor, Producers producers = {});

// New handles of which a caller gets all or none: those that it has not got are taken back.
class GivenTensors {
 public:
  GivenTensors() = default;
  ~GivenTensors();
  GivenTensors(const GivenTensors&) = delete;
  GivenTensors& operator=(const GivenTensors&) = delete;

  // As give_tensor.
  fsdp2_tensor give(at::Tensor tensor, Producers producers = {});
  const std::vector<fsdp2_tensor>& handles() const { return handles_; }
  // The caller gets them: the last thing that a call does.
  std::vector<fsdp2_tensor> keep() { return std::exchange(handles_, {}); }

 private:
  std::vector<fsdp2_tensor> handles_;
};

// New handles for tensors, {0} for undefined ones, all or none of which the caller gets. An output
// that is null is left out.
void give_tensors(const std::vector<std::pair<at::Tensor, fsdp2_tensor*>>& outs);

// The tensors of an argument; kWrongState for one whose memory FSDP has freed.
std::vector<at::Tensor> read_tensors(const fsdp2_tensor* tensors, size_t count, const char* name);

// A module's inputs by position. Those that it need not be given may be {0}, and are undefined
// here: None. Errors: kInvalidArgument for a number of them that the module does not take; as
// read_tensors.
std::vector<at::Tensor> read_inputs(const nn::Module& module, const fsdp2_tensor* inputs,
                                    size_t count, const char* name);

// Adds those of a tensor that are not there yet.
void add_producers(const TensorObject& tensor, Producers& producers);
// Those in `first`, then the producers of all inputs, whose graphs a backward will go through; {0}
// has none.
Producers producers_of(const fsdp2_tensor* inputs, size_t count, Producers first = {});

// kWrongState for a tensor whose memory FSDP has freed: its elements must not be touched.
void check_has_memory(const at::Tensor& tensor);
// The same, and kUnsupported for a tensor on meta, which has a shape and no elements.
void check_has_values(const at::Tensor& tensor);

}  // namespace fsdp2::capi
