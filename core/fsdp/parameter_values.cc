#include "core/fsdp/parameter_values.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/agreement.h"
#include "core/fsdp/group/chunk_copy.h"

namespace fsdp2::fsdp {

namespace {

// Rows that are read at a time where only some columns of them are kept.
constexpr int64_t kBlockBytes = int64_t{16} << 20;

// Keeps this rank's columns of a parameter that is sharded on another dim than 0.
void read_columns(nn::ParameterSource& source, const ShardedParam& param) {
  const ShardLayout& layout = param.layout();
  const std::vector<int64_t>& shape = layout.global_shape;
  const at::Tensor local = param.local_values();
  const int64_t row_bytes =
      std::max<int64_t>(1, layout.global_numel() / std::max<int64_t>(shape[0], 1) *
                               static_cast<int64_t>(local.element_size()));
  const int64_t rows_at_once = std::max<int64_t>(1, kBlockBytes / row_bytes);
  for (int64_t row = 0; row < shape[0]; row += rows_at_once) {
    std::vector<int64_t> block_shape = shape;
    block_shape[0] = std::min(rows_at_once, shape[0] - row);
    const at::Tensor block = at::empty(block_shape, local.options().device(at::kCPU));
    source.read(nn::name_in(source, param.names()), shape, row, block);
    local.narrow(0, row, block_shape[0])
        .copy_(block.narrow(layout.dim, layout.start, layout.length));
  }
}

void read_own(nn::ParameterSource& source, const ShardedParam& param) {
  const ShardLayout& layout = param.layout();
  // local_values() would zero it first, which takes as long as the reading.
  std::optional<nn::MemoryForValues> memory;
  if (nn::has_no_memory(param.stored())) {
    memory.emplace(param.stored());
    if (!param.is_whole()) {
      param.padding().zero_();
    }
  }
  if (layout.dim == 0) {
    source.read(nn::name_in(source, param.names()), layout.global_shape, layout.start,
                param.local_values());
  } else {
    read_columns(source, param);
  }
  if (memory) {
    memory->keep();
  }
}

// Parameters of the tree that fully_shard left alone and that have no memory yet: whole.
std::vector<nn::NamedParameter> deferred_ignored(const Unit& root) {
  std::vector<nn::NamedParameter> deferred;
  for (nn::NamedParameter& parameter : nn::named_unique_parameters(*root.modules().front())) {
    if (!ShardedParam::manages(parameter.tensor) && nn::has_no_memory(parameter.tensor)) {
      deferred.push_back(std::move(parameter));
    }
  }
  return deferred;
}

void fill_deferred(const nn::NamedParameter& parameter,
                   const std::function<void(const at::Tensor& values)>& read) {
  nn::MemoryForValues memory(parameter.tensor);
  const at::Tensor values = parameter.tensor.variable_data();
  read(values.dim() == 0 ? values.view({1}) : values);
  memory.keep();
}

void load_ignored(const Unit& root, nn::ParameterSource& source) {
  for (const nn::NamedParameter& parameter : deferred_ignored(root)) {
    fill_deferred(parameter, [&](const at::Tensor& values) {
      source.read(parameter.names.front(), parameter.tensor.sizes(), 0, values);
    });
  }
}

// The first rank reads a whole parameter, the others get it. `whole` is in the host's memory, since
// it travels over the team's control group.
void read_and_broadcast(Team& team, nn::ParameterSource& source, const std::string& name,
                        at::IntArrayRef shape, const at::Tensor& whole) {
  agree(team, "parameter " + name, [&] {
    if (team.rank() == 0) {
      source.read(name, shape, 0, whole);
    }
    return std::string();
  });
  team.control().broadcast(whole.view({-1}), 0).wait();
}

void broadcast_ignored(Unit& root, nn::ParameterSource& source) {
  Team& team = root.mesh().team();
  const std::vector<nn::NamedParameter> deferred = deferred_ignored(root);
  agree(team, "the ignored parameters without values", [&] {
    std::string names;
    for (const nn::NamedParameter& parameter : deferred) {
      names += parameter.names.front() + "=ignored, without values\n";
    }
    return names;
  });
  for (const nn::NamedParameter& parameter : deferred) {
    fill_deferred(parameter, [&](const at::Tensor& values) {
      const at::Tensor whole = values.to(at::kCPU);
      read_and_broadcast(team, source, parameter.names.front(), parameter.tensor.sizes(), whole);
      if (!whole.is_same(values)) {
        values.copy_(whole);
      }
    });
  }
}

// Everyone keeps its own part of rank 0's.
void broadcast_parameter(Unit& root, nn::ParameterSource& source, const ShardedParam& param) {
  const ShardLayout& layout = param.layout();
  const at::Tensor local = param.local_values();
  const at::Tensor whole = at::empty(layout.global_shape, local.options().device(at::kCPU));
  read_and_broadcast(root.mesh().team(), source, nn::name_in(source, param.names()),
                     layout.global_shape, whole);
  if (layout.length > 0) {
    local.copy_(whole.narrow(layout.dim, layout.start, layout.length));
  }
}

void refuse_without_values(const std::vector<std::string>& names, const char* before) {
  constexpr size_t kNamesInMessage = 8;
  FSDP2_CHECK(names.empty(), Code::kWrongState,
              "the parameters {} have no values yet: load them (from a file or a seed) before {}",
              list_some(names, kNamesInMessage), before);
}

at::Tensor gather_full(Unit& root, const ShardedParam& param, const at::Tensor& chunk) {
  const Mesh& mesh = root.tree().group_of(param).mesh();
  Comm& comm = mesh.comm(mesh.ndim() - 1, Lane::kGather);
  const ShardLayout& layout = param.layout();
  const at::Tensor padded = chunk.to(comm.device());  // an offloaded shard is on the host
  const at::Tensor rows = at::empty({layout.world, layout.padded_numel()}, padded.options());
  comm.all_gather(rows.view({-1}), padded).wait_on_stream();
  if (layout.chunks_are_contiguous()) {
    return rows.view({-1}).narrow(0, 0, layout.global_numel()).view(layout.global_shape);
  }
  const at::Tensor full = at::empty(layout.global_shape, padded.options());
  chunks_to_parameter(layout, rows, full.view({-1}));
  return full;
}

}  // namespace

void load_parameters(Unit& root, nn::ParameterSource& source, LoadFrom from) {
  const at::NoGradGuard no_grad;
  const std::vector<ShardedParam*>& params = root.parameters();
  if (from == LoadFrom::kRankZero) {
    for (const ShardedParam* param : params) {
      broadcast_parameter(root, source, *param);
    }
    broadcast_ignored(root, source);
  } else {
    agree(root.mesh().team(), "the parameters' values", [&] {
      for (const ShardedParam* param : params) {
        read_own(source, *param);
      }
      load_ignored(root, source);
      return std::string();
    });
  }
  for (ShardedParam* param : params) {
    param->mark_has_values();
  }
  root.scheduler().shards_changed();
}

void check_have_values(const std::vector<Scheduler::Member>& units, const char* before) {
  std::vector<std::string> without;
  for (const Scheduler::Member& unit : units) {
    for (const ShardedParam* param : unit.group->params()) {
      if (!param->has_values()) {
        without.push_back(param->name());
      }
    }
  }
  refuse_without_values(without, before);
}

void check_have_values(Unit& root, const char* before) {
  check_have_values(root.scheduler().members(), before);
  std::vector<std::string> without;
  for (const nn::NamedParameter& parameter : deferred_ignored(root)) {
    without.push_back(parameter.names.front());
  }
  refuse_without_values(without, before);
}

at::Tensor full_parameter(Unit& root, const ShardedParam& param) {
  const at::NoGradGuard no_grad;
  if (param.is_whole()) {
    return param.sharded().detach().clone();
  }
  return gather_full(root, param, param.shard_flat());
}

at::Tensor full_gradient(Unit& root, const ShardedParam& param) {
  const at::Tensor grad = param.sharded().grad();
  return grad.defined() ? full_value(root, param, grad) : at::Tensor();
}

at::Tensor full_value(Unit& root, const ShardedParam& param, const at::Tensor& local) {
  const at::NoGradGuard no_grad;
  if (param.is_whole()) {
    return local.clone();
  }
  const at::Tensor padded = at::zeros({param.layout().padded_numel()}, local.options());
  padded.narrow(0, 0, local.numel()).copy_(local.reshape({-1}));
  return gather_full(root, param, padded);
}

}  // namespace fsdp2::fsdp
