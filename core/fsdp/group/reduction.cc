#include "core/fsdp/group/reduction.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/comm/check/collective_subject.h"
#include "core/fsdp/group/chunk_copy.h"
#include "core/fsdp/group/collectives.h"
#include "core/nn/meta_tensor.h"

namespace fsdp2::fsdp {

namespace {

// How a reduction comes to its average (or the caller's scale); the cases are PyTorch's.
struct Scaling {
  ReduceOp op = ReduceOp::kAverage;
  double before = 1;  // divisor ahead of the sum
  double after = 1;   // and behind it
};

Scaling scaling_of(const ReduceOptions& options) {
  if (!options.divide_factor && !options.force_sum) {
    return {};
  }
  const int replicas = options.replicate != nullptr ? options.replicate->size() : 1;
  const double factor = options.divide_factor.value_or(options.shard->size() * replicas);
  if (options.dtype != at::kHalf) {
    return {ReduceOp::kSum, 1, factor};
  }
  // About the square root on each side of the sum, so that it neither overflows nor underflows.
  double before = 1;
  while (std::fmod(factor, before) == 0 && factor / before > before) {
    before *= 2;
  }
  return {ReduceOp::kSum, before, factor / before};
}

at::Device device_of(const ReduceInFlight& in_flight) {
  return in_flight.flagged_params.front()->unsharded().device();
}

// Where a group is of one rank, what the reduction reads is what it gives.
ReduceInFlight::Direct direct_reduction(const ReduceInFlight& in_flight, ShardedParam& param,
                                        const at::Tensor& grad, const Scaling& scaling) {
  const ReduceOptions& options = in_flight.options;
  if (!options.in_group_memory && grad.defined() && grad.scalar_type() == options.dtype &&
      grad.is_contiguous() && scaling.before == 1) {
    return {&param, grad.view({-1}), /*from_buffers=*/false, {}, {}};
  }
  const bool from_buffers = options.shard->size() > 1 || options.in_group_memory;
  const at::TensorOptions input_options = at::device(device_of(in_flight)).dtype(options.dtype);
  const int64_t numel = param.layout().world * param.layout().padded_numel();
  const at::Tensor input = from_buffers ? options.buffers->empty({numel}, input_options)
                                        : at::empty({numel}, input_options);
  if (!grad.defined()) {
    input.zero_();
  } else {
    input.view(grad.sizes()).copy_(grad);
    if (scaling.before != 1) {
      input.div_(scaling.before);
    }
  }
  return {&param, input, from_buffers, {}, {}};
}

int64_t packed_width(const ReduceInFlight& in_flight) {
  int64_t width = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    width += param->layout().padded_numel();
  }
  return width;
}

at::Tensor pack_gradients(const ReduceInFlight& in_flight, const std::vector<at::Tensor>& grads,
                          const Scaling& scaling) {
  const int64_t width = packed_width(in_flight);
  const auto n_flags = static_cast<int64_t>(in_flight.has_grad.size());
  const at::TensorOptions options = at::device(device_of(in_flight)).dtype(in_flight.options.dtype);
  const at::Tensor input =
      in_flight.options.buffers->empty({in_flight.options.shard->size(), width + n_flags}, options);
  int64_t offset = 0;
  CopyList copies;
  for (size_t i = 0; i < grads.size(); ++i) {
    const ShardedParam& param = *in_flight.packed_params[i];
    const int64_t numel = param.layout().padded_numel();
    parameter_to_chunks(param.layout(), grads[i], input.narrow(1, offset, numel), copies);
    offset += numel;
  }
  copies.run();
  if (scaling.before != 1) {
    input.narrow(1, 0, width).div_(scaling.before);
  }
  input.narrow(1, width, n_flags).fill_(1.0);
  for (int64_t i = 0; i < n_flags; ++i) {
    if (!in_flight.has_grad[static_cast<size_t>(i)]) {
      input.select(1, width + i).zero_();
    }
  }
  return input;
}

at::Tensor empty_output(const ReduceInFlight& in_flight, int64_t numel) {
  const ReduceOptions& options = in_flight.options;
  const at::TensorOptions output_options = at::device(device_of(in_flight)).dtype(options.dtype);
  return options.in_group_memory ? options.buffers->empty({numel}, output_options)
                                 : at::empty({numel}, output_options);
}

// The outputs' memory is the reduce stream's, which comes after the last use of what it got back.
void issue_reduce_scatter(ReduceInFlight& in_flight, ReduceOp op) {
  Comm& shard = *in_flight.options.shard;
  SideStream& stream = in_flight.options.streams->reduce;
  stream.follow_current();
  const auto entered = stream.enter();
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    if (shard.size() == 1) {
      direct.sharded_grad = direct.input;
    } else {
      direct.sharded_grad = empty_output(in_flight, direct.param->layout().padded_numel());
      const auto names = [&] { return names_of({direct.param}); };
      const CollectiveSubject subject(names);
      direct.work = shard.reduce_scatter(direct.sharded_grad, direct.input, op);
    }
  }
  in_flight.packed_output = empty_output(in_flight, in_flight.packed_input.size(1));
  const auto names = [&] { return names_of(in_flight.flagged_params); };
  const CollectiveSubject subject(names);
  in_flight.packed =
      shard.reduce_scatter(in_flight.packed_output, in_flight.packed_input.view({-1}), op);
}

void wait_for_reduce_scatter(ReduceInFlight& in_flight) {
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    direct.work.wait_on_stream();
  }
  in_flight.packed.wait_on_stream();
}

// What the reduction has read and nobody needs any more. Its memory is the current stream's, which
// comes after the reduction.
void drop_sources(ReduceInFlight& in_flight) {
  KeptBuffers& buffers = *in_flight.options.buffers;
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    if (direct.from_buffers) {
      buffers.drop(direct.input);
    }
    direct.input = at::Tensor();
  }
  buffers.drop(in_flight.packed_input);
  in_flight.added = {};
}

// The gradients without the flags behind them.
at::Tensor packed_gradients(const ReduceInFlight& in_flight) {
  const auto n_flags = static_cast<int64_t>(in_flight.flagged_params.size());
  return in_flight.packed_output.narrow(0, 0, in_flight.packed_output.numel() - n_flags);
}

at::Tensor flags_of(const ReduceInFlight& in_flight) {
  const auto n_flags = static_cast<int64_t>(in_flight.flagged_params.size());
  return in_flight.packed_output.narrow(0, in_flight.packed_output.numel() - n_flags, n_flags);
}

// Each parameter's reduced padded chunk, in the order of the flags, whichever path it took.
std::vector<at::Tensor> chunks_of(const ReduceInFlight& in_flight) {
  std::vector<at::Tensor> chunks;
  size_t next_direct = 0;
  int64_t offset = 0;
  for (const ShardedParam* param : in_flight.flagged_params) {
    if (next_direct < in_flight.direct.size() && in_flight.direct[next_direct].param == param) {
      chunks.push_back(in_flight.direct[next_direct++].sharded_grad);
    } else {
      const int64_t numel = param->layout().padded_numel();
      chunks.push_back(in_flight.packed_output.narrow(0, offset, numel));
      offset += numel;
    }
  }
  return chunks;
}

void add_partial(ReduceInFlight& in_flight, PartialReduction& partial) {
  if (partial.chunks.empty()) {
    return;
  }
  const std::vector<at::Tensor> chunks = chunks_of(in_flight);
  for (size_t i = 0; i < chunks.size(); ++i) {
    chunks[i].add_(partial.chunks[i]);
  }
  flags_of(in_flight).add_(partial.flags);
  in_flight.added = std::exchange(partial, {});
}

void reduce_over_replicas(ReduceInFlight& in_flight) {
  Comm& replicate = *in_flight.options.replicate;
  const ReduceOp op = scaling_of(in_flight.options).op;
  std::vector<CommWork> works;
  const auto names = [&] { return names_of(in_flight.flagged_params); };
  const CollectiveSubject subject(names);
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    works.push_back(replicate.all_reduce(direct.sharded_grad, op));
  }
  works.push_back(replicate.all_reduce(in_flight.packed_output, op));
  for (CommWork& work : works) {
    work.wait_on_stream();
  }
}

void divide(ReduceInFlight& in_flight, double divisor) {
  if (divisor == 1) {
    return;
  }
  for (ReduceInFlight::Direct& direct : in_flight.direct) {
    direct.sharded_grad.div_(divisor);
  }
  packed_gradients(in_flight).div_(divisor);
}

at::Tensor local_part(const ShardedParam& param, const at::Tensor& padded) {
  const ShardLayout& layout = param.layout();
  const bool is_full = padded.numel() == layout.local_numel();
  return (is_full ? padded : padded.narrow(0, 0, layout.local_numel())).view(layout.local_shape());
}

// If their shards are there.
void copy_to_host(ReduceInFlight& in_flight) {
  const ShardedParam& first = *in_flight.flagged_params.front();
  if (first.sharded().device() == first.unsharded().device()) {
    return;
  }
  const std::vector<at::Tensor> chunks = chunks_of(in_flight);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const ShardedParam& param = *in_flight.flagged_params[i];
    const at::Tensor grad = local_part(param, chunks[i]).to(param.dtype());
    const bool pinned = param.shard_flat().is_pinned();
    const at::TensorOptions options = param.shard_flat().options().pinned_memory(pinned);
    in_flight.on_host.push_back(at::empty(grad.sizes(), options));
    in_flight.on_host.back().copy_(grad, /*non_blocking=*/true);
  }
}

// The last that happens to the gradients of the whole group, on the stream of its last collective.
void complete(ReduceInFlight& in_flight) {
  if (in_flight.options.hook) {
    in_flight.options.hook(packed_gradients(in_flight));
  }
  divide(in_flight, scaling_of(in_flight.options).after);
  copy_to_host(in_flight);
  in_flight.reduced.put(in_flight.options.shard->device());
}

// Which parameters got a gradient on some rank; see Note [Gradient flags].
std::vector<bool> found_gradients(const ReduceInFlight& in_flight) {
  std::vector<bool> found = in_flight.has_grad;
  const bool has_flags = !device_of(in_flight).is_meta();
  if (!has_flags || std::find(found.begin(), found.end(), false) == found.end()) {
    return found;
  }
  const at::Tensor flags = flags_of(in_flight).to(at::kCPU, at::kFloat);
  for (size_t i = 0; i < found.size(); ++i) {
    found[i] = found[i] || flags.const_data_ptr<float>()[i] > 0.0F;
  }
  return found;
}

void set_sharded_grads(ReduceInFlight& in_flight, ArrivingGradients& arriving) {
  const std::vector<at::Tensor> chunks = chunks_of(in_flight);
  const std::vector<bool> found = in_flight.options.zeros_for_unused
                                      ? std::vector<bool>(chunks.size(), true)
                                      : found_gradients(in_flight);
  const bool to_host = !in_flight.on_host.empty();
  if (to_host) {
    arriving.set_copied(std::move(in_flight.reduced));
  }
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (found[i]) {
      ShardedParam& param = *in_flight.flagged_params[i];
      if (to_host) {
        arriving.add(param, in_flight.on_host[i]);
      } else {
        param.add_sharded_grad(local_part(param, chunks[i]).to(param.dtype()));
      }
      if (in_flight.options.on_grad) {
        arriving.arrive();
        in_flight.options.on_grad(param);
      }
    }
  }
}

}  // namespace

ReduceInFlight start_reduce_scatter(const std::vector<ShardedParam*>& params,
                                    const ReduceOptions& options) {
  ReduceInFlight in_flight;
  in_flight.options = options;
  in_flight.flagged_params = params;
  const Scaling scaling = scaling_of(options);
  // A hook is promised all gradients in one buffer.
  const CommPath path = options.hook ? CommPath::kPacked : options.path;
  std::vector<at::Tensor> packed_grads;
  for (ShardedParam* param : params) {
    at::Tensor grad = param->take_unsharded_grad();
    in_flight.has_grad.push_back(grad.defined());
    if (reduces_direct(*param, path)) {
      in_flight.direct.push_back(direct_reduction(in_flight, *param, grad, scaling));
    } else {
      in_flight.packed_params.push_back(param);
      packed_grads.push_back(std::move(grad));
    }
  }
  in_flight.packed_input = pack_gradients(in_flight, packed_grads, scaling);
  packed_grads.clear();
  issue_reduce_scatter(in_flight, scaling.op);
  return in_flight;
}

void continue_reduction(ReduceInFlight& in_flight, PartialReduction& partial) {
  const ReduceOptions& options = in_flight.options;
  const auto on_reduce = options.streams->reduce.enter();
  wait_for_reduce_scatter(in_flight);
  add_partial(in_flight, partial);
  if (nn::acts_as_host(options.shard->device())) {
    drop_sources(in_flight);
  }
  if (options.replicate == nullptr) {
    complete(in_flight);
  } else if (options.all_reduce) {
    options.streams->all_reduce.follow_current();
    const auto on_all_reduce = options.streams->all_reduce.enter();
    reduce_over_replicas(in_flight);
    complete(in_flight);
  } else {
    partial = {chunks_of(in_flight), flags_of(in_flight)};
    in_flight.put_off = true;
    in_flight.reduced.put(options.shard->device());
  }
}

void finish_reduction(ReduceInFlight& in_flight, ArrivingGradients& arriving) {
  in_flight.reduced.make_current_wait();
  drop_sources(in_flight);
  if (!in_flight.put_off) {
    set_sharded_grads(in_flight, arriving);
  }
  in_flight = {};
}

void ArrivingGradients::arrive() {
  if (grads_.empty()) {
    return;
  }
  copied_.wait_on_host();
  for (auto& [param, grad] : std::exchange(grads_, {})) {
    param->add_sharded_grad(std::move(grad));
  }
}

void discard_reduce_scatter(ReduceInFlight& in_flight) {
  const SideStream& stream = in_flight.options.streams->reduce;
  {
    const auto entered = stream.enter();
    wait_for_reduce_scatter(in_flight);
  }
  stream.make_current_wait();
  in_flight.reduced.make_current_wait();
  in_flight = {};
}

}  // namespace fsdp2::fsdp
