#include "include/fsdp2/tensor.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "capi/argument.h"
#include "capi/dlpack.h"
#include "capi/dtype.h"
#include "capi/nouns/module/tensor.h"
#include "capi/sized_struct.h"
#include "core/nn/module.h"

namespace fsdp2::capi {

namespace {

int64_t bytes_of(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  // The strides of a tensor without elements are those of one whose sizes of 0 are 1.
  auto bytes = static_cast<int64_t>(at::elementSize(dtype));
  bool is_empty = false;
  for (const int64_t size : shape) {
    FSDP2_CHECK(size >= 0 && !__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes),
                Code::kInvalidArgument, "shape: size {} is negative or makes the tensor too large",
                size);
    is_empty = is_empty || size == 0;
  }
  return is_empty ? 0 : bytes;
}

void check_booleans(const unsigned char* data, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    FSDP2_CHECK(data[i] <= 1, Code::kInvalidArgument,
                "data: expected 0 or 1 as booleans, found {} at {}", data[i], i);
  }
}

// The caller's bytes, checked once they are the library's own.
at::Tensor copy_of_bytes(const void* data, size_t n_bytes, at::IntArrayRef shape,
                         at::ScalarType dtype) {
  // Straight from the allocator: the dispatcher on the way to it takes as long.
  const at::Tensor tensor(at::detail::empty_cpu(shape, dtype));
  if (n_bytes > 0) {
    std::memcpy(tensor.mutable_data_ptr(), data, n_bytes);
  }
  if (dtype == at::kBool) {
    check_booleans(static_cast<const unsigned char*>(tensor.const_data_ptr()), n_bytes);
  }
  return tensor;
}

at::Tensor tensor_from_buffer(const void* data, size_t n_bytes, int32_t dtype_number,
                              const int64_t* shape_data, size_t n_dims) {
  const at::ScalarType dtype = read_dtype(dtype_number, "dtype");
  const std::vector<int64_t> shape = read_shape(shape_data, n_dims);
  const auto expected = static_cast<uint64_t>(bytes_of(shape, dtype));
  FSDP2_CHECK(n_bytes == expected, Code::kInvalidArgument,
              "n_bytes: dtype and shape need {} bytes, found {}", expected, n_bytes);
  FSDP2_CHECK(data != nullptr || n_bytes == 0, Code::kNullArgument, "data is NULL with {} bytes",
              n_bytes);
  return copy_of_bytes(data, n_bytes, shape, dtype);
}

void read_tensor(const at::Tensor& tensor, void* to, size_t n_bytes) {
  check_has_values(tensor);
  FSDP2_CHECK(n_bytes == tensor.nbytes(), Code::kInvalidArgument,
              "n_bytes: the tensor has {} bytes, found {}", tensor.nbytes(), n_bytes);
  FSDP2_CHECK(to != nullptr || n_bytes == 0, Code::kNullArgument, "to is NULL with {} bytes",
              n_bytes);
  const at::Tensor values = tensor.detach().to(at::kCPU).contiguous();
  if (n_bytes > 0) {
    std::memcpy(to, values.const_data_ptr(), n_bytes);
  }
}

void write_tensor(const at::Tensor& tensor, const void* from, size_t n_bytes) {
  check_has_values(tensor);
  FSDP2_CHECK(n_bytes == tensor.nbytes(), Code::kInvalidArgument,
              "n_bytes: the tensor has {} bytes, found {}", tensor.nbytes(), n_bytes);
  FSDP2_CHECK(from != nullptr || n_bytes == 0, Code::kNullArgument, "from is NULL with {} bytes",
              n_bytes);
  tensor.detach().copy_(copy_of_bytes(from, n_bytes, tensor.sizes(), tensor.scalar_type()));
}

double value_of(const at::Tensor& tensor) {
  check_has_values(tensor);
  FSDP2_CHECK(tensor.numel() == 1, Code::kInvalidArgument, "tensor: expected one element, found {}",
              tensor.numel());
  return tensor.detach().item().toDouble();
}

fsdp2_tensor_info tensor_info(const at::Tensor& tensor) {
  fsdp2_tensor_info info{};
  info.dtype = dtype_number(tensor.scalar_type());
  info.device_type = tensor.is_cuda() ? FSDP2_DEVICE_CUDA : FSDP2_DEVICE_CPU;
  info.device_index = tensor.is_cuda() ? tensor.get_device() : 0;
  FSDP2_CHECK(tensor.dim() <= FSDP2_MAX_DIMS, Code::kUnsupported,
              "tensor: {} dims are more than {}", tensor.dim(), FSDP2_MAX_DIMS);
  info.n_dims = static_cast<int32_t>(tensor.dim());
  info.requires_grad = tensor.requires_grad() ? 1 : 0;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    info.shape[dim] = tensor.size(dim);
    info.strides[dim] = tensor.stride(dim);
  }
  info.n_bytes = static_cast<int64_t>(tensor.nbytes());
  return info;
}

// The handle's tensor; kWrongState for one whose memory FSDP has freed.
at::Tensor usable_tensor(fsdp2_tensor handle) {
  at::Tensor tensor = pin(handle)->tensor;
  check_has_memory(tensor);
  return tensor;
}

}  // namespace

std::vector<int64_t> read_shape(const int64_t* shape, size_t n_dims) {
  check_array(shape, n_dims, "shape");
  FSDP2_CHECK(n_dims <= FSDP2_MAX_DIMS, Code::kInvalidArgument,
              "n_dims: expected at most {}, found {}", FSDP2_MAX_DIMS, n_dims);
  return {shape, shape + n_dims};
}

fsdp2_tensor give_tensor(at::Tensor tensor, Producers producers) {
  auto object = std::make_shared<TensorObject>();
  object->producers = std::move(producers);
  object->tensor = std::move(tensor);
  return {give(Kind::kTensor, std::move(object))};
}

GivenTensors::~GivenTensors() {
  for (const fsdp2_tensor handle : handles_) {
    HandleTable::global().remove_if_there(handle.id, Kind::kTensor);
  }
}

fsdp2_tensor GivenTensors::give(at::Tensor tensor, Producers producers) {
  handles_.reserve(handles_.size() + 1);  // what has been given must be remembered
  handles_.push_back(give_tensor(std::move(tensor), std::move(producers)));
  return handles_.back();
}

void give_tensors(const std::vector<std::pair<at::Tensor, fsdp2_tensor*>>& outs) {
  GivenTensors given;
  std::vector<fsdp2_tensor> handles;
  for (const auto& [tensor, out] : outs) {
    const bool is_given = tensor.defined() && out != nullptr;
    handles.push_back(is_given ? given.give(tensor) : fsdp2_tensor{0});
  }
  given.keep();
  for (size_t i = 0; i < outs.size(); ++i) {
    if (outs[i].second != nullptr) {
      *outs[i].second = handles[i];
    }
  }
}

void add_producers(const TensorObject& tensor, Producers& producers) {
  for (const Producer& producer : tensor.producers) {
    const bool is_there =
        std::any_of(producers.begin(), producers.end(), [&](const Producer& other) {
          return other.module == producer.module && other.was_sharded == producer.was_sharded;
        });
    if (!is_there) {
      producers.push_back(producer);
    }
  }
}

Producers producers_of(const fsdp2_tensor* inputs, size_t count, Producers first) {
  Producers producers = std::move(first);
  for (size_t i = 0; i < count; ++i) {
    if (inputs[i].id != 0) {
      add_producers(*pin(inputs[i]), producers);
    }
  }
  return producers;
}

std::vector<at::Tensor> read_tensors(const fsdp2_tensor* tensors, size_t count, const char* name) {
  check_array(tensors, count, name);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(usable_tensor(tensors[i]));
  }
  return out;
}

std::vector<at::Tensor> read_inputs(const nn::Module& module, const fsdp2_tensor* inputs,
                                    size_t count, const char* name) {
  check_array(inputs, count, name);
  const nn::InputCount takes = module.input_count();
  FSDP2_CHECK(count >= takes.required && count <= takes.most, Code::kInvalidArgument,
              "{}: expected {} to {} inputs, as {} takes, found {}", name, takes.required,
              takes.most, module.kind(), count);
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < count; ++i) {
    const bool is_none = i >= takes.required && inputs[i].id == 0;
    out.push_back(is_none ? at::Tensor() : usable_tensor(inputs[i]));
  }
  return out;
}

void check_has_values(const at::Tensor& tensor) {
  check_has_memory(tensor);
  FSDP2_CHECK(!tensor.is_meta(), Code::kUnsupported,
              "tensor: expected one with values, found one on meta, which has a shape alone");
}

void check_has_memory(const at::Tensor& tensor) {
  if (!nn::has_no_memory(tensor)) {
    return;
  }
  const std::string& title = tensor.is_view() ? tensor._base().name() : tensor.name();
  fail(
      Code::kWrongState,
      "tensor: expected one with memory, found {}, which is sharded now and whose memory is freed: "
      "use it inside the forward of the module that the unit is",
      title.empty() ? "a parameter" : title);
}

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
using fsdp2::capi::pin;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_tensor_from_buffer(const void* data, size_t n_bytes, int32_t dtype,
                                      const int64_t* shape, size_t n_dims, fsdp2_tensor* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(out, "out");
    *out = capi::give_tensor(capi::tensor_from_buffer(data, n_bytes, dtype, shape, n_dims));
  });
}

fsdp2_status fsdp2_tensor_read(fsdp2_tensor tensor, void* to, size_t n_bytes) {
  return guard(__func__, [&](Call&) { capi::read_tensor(pin(tensor)->tensor, to, n_bytes); });
}

fsdp2_status fsdp2_tensor_get_value(fsdp2_tensor tensor, double* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(tensor);
    capi::check_not_null(out, "out");
    *out = capi::value_of(object->tensor);
  });
}

fsdp2_status fsdp2_tensor_from_dlpack(struct DLManagedTensorVersioned* source, fsdp2_tensor* out) {
  return guard(__func__, [&](Call&) {
    capi::check_not_null(source, "source");
    capi::check_not_null(out, "out");
    capi::ImportedTensor imported = capi::import_dlpack(source);
    *out = capi::give_tensor(std::move(imported.tensor));
    imported.source->release_by(capi::run_deleter);
  });
}

fsdp2_status fsdp2_tensor_to_dlpack(fsdp2_tensor tensor, uintptr_t consumer_stream,
                                    struct DLManagedTensorVersioned** out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(tensor);
    capi::check_not_null(out, "out");
    FSDP2_CHECK(consumer_stream == 0 || !object->tensor.is_cpu(), fsdp2::Code::kInvalidArgument,
                "consumer_stream: expected 0 for a tensor on the CPU, found {}", consumer_stream);
    *out = capi::export_dlpack(object->tensor);
  });
}

fsdp2_status fsdp2_tensor_get_info(fsdp2_tensor tensor, fsdp2_tensor_info* out) {
  return guard(__func__, [&](Call&) {
    const auto object = pin(tensor);
    capi::check_out_struct(out, "out");
    capi::fill_struct(out, capi::tensor_info(object->tensor));
  });
}

fsdp2_status fsdp2_tensor_write(fsdp2_tensor tensor, const void* from, size_t n_bytes) {
  return guard(__func__, [&](Call&) { capi::write_tensor(pin(tensor)->tensor, from, n_bytes); });
}

fsdp2_status fsdp2_tensor_destroy(fsdp2_tensor tensor) {
  return capi::destroy(__func__, capi::Kind::kTensor, tensor.id);
}

fsdp2_status fsdp2_tensor_duplicate(fsdp2_tensor tensor, fsdp2_tensor* out) {
  return capi::duplicate(__func__, capi::Kind::kTensor, tensor, out);
}
