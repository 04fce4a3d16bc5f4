#include "core/fsdp/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace fsdp2::fsdp {

namespace {

// Each parameter's slot in the packed gather buffer starts aligned, since dtypes may differ.
constexpr int64_t kSlotAlignment = 64;

int64_t slot_bytes(const ShardedParam& param) {
  const int64_t bytes = param.unsharded_bytes() / param.layout().world;
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

bool goes_direct(const ShardedParam& param, CommPath path) {
  switch (path) {
    case CommPath::kDirect:
      return true;
    case CommPath::kPacked:
      return false;
    case CommPath::kAuto:
      break;
  }
  return param.unsharded_bytes() >= kDirectBytes;
}

// The all-gather input of a parameter, in compute dtype.
at::Tensor gather_input(const ShardedParam& param) {
  return param.shard_flat().to(param.compute_dtype());
}

void start_packed_gather(GatherInFlight& in_flight, Comm& comm) {
  int64_t row_bytes = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    row_bytes += slot_bytes(*param);
  }
  at::Tensor buffer = at::empty({comm.size(), row_bytes}, at::kByte);
  const at::Tensor own = buffer[comm.rank()];
  int64_t offset = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    const at::Tensor input = gather_input(*param).view(at::kByte);
    own.narrow(0, offset, input.numel()).copy_(input);
    offset += slot_bytes(*param);
  }
  in_flight.packed_buffer = buffer;
  in_flight.packed = comm.all_gather(buffer.view({-1}), own);
}

// Rank-major rows of parameters -> each parameter's storage.
void copy_out_packed_gather(const GatherInFlight& in_flight, const Comm& comm) {
  int64_t offset = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    const int64_t bytes = param->unsharded_bytes() / comm.size();
    param->unsharded_flat()
        .view(at::kByte)
        .view({comm.size(), bytes})
        .copy_(in_flight.packed_buffer.narrow(1, offset, bytes));
    offset += slot_bytes(*param);
  }
}

// Copies a gradient (undefined: zeros) into columns [0, padded_numel) of `rows`, one row a rank.
void pack_gradient(const ShardedParam& param, const at::Tensor& grad, const at::Tensor& rows) {
  if (!grad.defined()) {
    rows.zero_();
    return;
  }
  const int64_t width = param.layout().padded_numel();
  const at::Tensor flat = grad.reshape({-1});
  if (param.layout().even()) {
    rows.copy_(flat.view({-1, width}));
    return;
  }
  for (int64_t row = 0; row < rows.size(0); ++row) {
    const int64_t begin = std::min(row * width, flat.numel());
    const int64_t count = std::min(width, flat.numel() - begin);
    rows[row].narrow(0, 0, count).copy_(flat.narrow(0, begin, count));
    rows[row].narrow(0, count, width - count).zero_();
  }
}

ReduceInFlight::Direct start_direct_reduce(ShardedParam& param, at::Tensor grad, Comm& shard,
                                           at::ScalarType dtype) {
  const at::TensorOptions options = at::TensorOptions().dtype(dtype);
  at::Tensor input = grad.defined()
                         ? grad.to(dtype).contiguous().view({-1})
                         : at::zeros({shard.size() * param.layout().padded_numel()}, options);
  if (shard.size() == 1) {
    return {&param, CommWork(), std::move(input), at::Tensor()};
  }
  at::Tensor output = at::empty({param.layout().padded_numel()}, options);
  CommWork work = shard.reduce_scatter(output, input, ReduceOp::kAverage);
  return {&param, std::move(work), std::move(output), std::move(input)};
}

void start_packed_reduce(ReduceInFlight& in_flight, const std::vector<at::Tensor>& grads,
                         const std::vector<bool>& has_grad, Comm& shard) {
  int64_t width = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    width += param->layout().padded_numel();
  }
  const auto n_flags = static_cast<int64_t>(has_grad.size());
  const at::TensorOptions options = at::TensorOptions().dtype(in_flight.reduce_dtype);
  at::Tensor input = at::empty({shard.size(), width + n_flags}, options);
  int64_t offset = 0;
  for (size_t i = 0; i < grads.size(); ++i) {
    const ShardedParam& param = *in_flight.packed_params[i];
    const int64_t numel = param.layout().padded_numel();
    pack_gradient(param, grads[i], input.narrow(1, offset, numel));
    offset += numel;
  }
  for (int64_t i = 0; i < n_flags; ++i) {
    input.select(1, width + i).fill_(has_grad[static_cast<size_t>(i)] ? 1.0 : 0.0);
  }
  in_flight.packed_input = input;
  in_flight.packed_output = at::empty({width + n_flags}, options);
  in_flight.packed =
      shard.reduce_scatter(in_flight.packed_output, input.view({-1}), ReduceOp::kAverage);
}

void average_over_replicas(ReduceInFlight& in_flight, Comm& replicate) {
  std::vector<CommWork> works;
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    works.push_back(replicate.all_reduce(direct.sharded_grad, ReduceOp::kAverage));
  }
  works.push_back(replicate.all_reduce(in_flight.packed_output, ReduceOp::kAverage));
  for (CommWork& work : works) {
    work.wait();
  }
}

// The parameters that got a gradient on some rank.
std::vector<const ShardedParam*> params_with_gradient(const ReduceInFlight& in_flight) {
  const auto n_flags = static_cast<int64_t>(in_flight.flagged_params.size());
  const at::Tensor& output = in_flight.packed_output;
  const at::Tensor flags =
      output.narrow(0, output.numel() - n_flags, n_flags).to(at::kCPU, at::kFloat);
  std::vector<const ShardedParam*> with_gradient;
  for (int64_t i = 0; i < n_flags; ++i) {
    if (flags.const_data_ptr<float>()[i] > 0.0F) {
      with_gradient.push_back(in_flight.flagged_params[static_cast<size_t>(i)]);
    }
  }
  return with_gradient;
}

void set_sharded_grad(ShardedParam& param, const at::Tensor& padded) {
  const at::Tensor local =
      padded.narrow(0, 0, param.layout().local_numel()).view(param.layout().local_shape());
  param.add_sharded_grad(local.to(param.dtype()));
}

}  // namespace

bool gathers_direct(const ShardedParam& param, CommPath path) { return goes_direct(param, path); }

bool reduces_direct(const ShardedParam& param, CommPath path) {
  return param.layout().even() && goes_direct(param, path);
}

GatherInFlight start_all_gather(const std::vector<ShardedParam*>& params, Comm& comm,
                                CommPath path) {
  GatherInFlight in_flight;
  for (ShardedParam* param : params) {
    if (param->is_whole()) {
      continue;
    }
    if (comm.size() == 1) {
      param->unsharded_flat().copy_(param->shard_flat());
    } else if (gathers_direct(*param, path)) {
      in_flight.direct.push_back(comm.all_gather(param->unsharded_flat(), gather_input(*param)));
    } else {
      in_flight.packed_params.push_back(param);
    }
  }
  if (!in_flight.packed_params.empty()) {
    start_packed_gather(in_flight, comm);
  }
  return in_flight;
}

void finish_all_gather(GatherInFlight& in_flight, Comm& comm) {
  for (CommWork& work : in_flight.direct) {
    work.wait();
  }
  if (!in_flight.packed_params.empty()) {
    in_flight.packed.wait();
    copy_out_packed_gather(in_flight, comm);
  }
  in_flight = {};
}

ReduceInFlight start_reduce_scatter(const std::vector<ShardedParam*>& params, Comm& shard,
                                    CommPath path, at::ScalarType reduce_dtype) {
  ReduceInFlight in_flight;
  in_flight.reduce_dtype = reduce_dtype;
  in_flight.flagged_params = params;
  std::vector<at::Tensor> packed_grads;
  std::vector<bool> has_grad;
  for (ShardedParam* param : params) {
    at::Tensor grad = param->take_unsharded_grad();
    has_grad.push_back(grad.defined());
    if (reduces_direct(*param, path)) {
      in_flight.direct.push_back(start_direct_reduce(*param, std::move(grad), shard, reduce_dtype));
    } else {
      in_flight.packed_params.push_back(param);
      packed_grads.push_back(std::move(grad));
    }
  }
  start_packed_reduce(in_flight, packed_grads, has_grad, shard);
  return in_flight;
}

void finish_reduce_scatter(ReduceInFlight& in_flight, Comm* replicate) {
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    direct.work.wait();
    direct.input = at::Tensor();
  }
  in_flight.packed.wait();
  in_flight.packed_input = at::Tensor();
  if (replicate != nullptr) {
    average_over_replicas(in_flight, *replicate);
  }
  const std::vector<const ShardedParam*> with_gradient = params_with_gradient(in_flight);
  const auto has_gradient = [&](const ShardedParam* param) {
    return std::find(with_gradient.begin(), with_gradient.end(), param) != with_gradient.end();
  };
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    if (has_gradient(direct.param)) {
      set_sharded_grad(*direct.param, direct.sharded_grad);
    }
  }
  int64_t offset = 0;
  for (ShardedParam* param : in_flight.packed_params) {
    const int64_t numel = param->layout().padded_numel();
    if (has_gradient(param)) {
      set_sharded_grad(*param, in_flight.packed_output.narrow(0, offset, numel));
    }
    offset += numel;
  }
  in_flight = {};
}

}  // namespace fsdp2::fsdp
