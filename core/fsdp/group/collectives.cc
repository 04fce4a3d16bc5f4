#include "core/fsdp/group/collectives.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "core/base/error.h"
#include "core/comm/check/collective_subject.h"
#include "core/fsdp/group/chunk_copy.h"

namespace fsdp2::fsdp {

namespace {

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

// This rank's part of what is gathered, where it is and as it is stored.
const at::Tensor& stored_piece(const ShardedParam& param, GatherSource source) {
  return source == GatherSource::kSlices ? param.slice() : param.shard_flat();
}

// The same in compute dtype and on the compute device: itself if it is that already and may travel
// from where it is, or cast into its place in the gathered parameter, where it is to be anyway.
at::Tensor gather_input(const ShardedParam& param, const Comm& comm, const GatherOptions& options) {
  const at::Tensor& piece = stored_piece(param, options.source);
  if (!options.in_group_memory && piece.scalar_type() == param.compute_dtype() &&
      piece.device() == param.unsharded().device()) {
    return piece;
  }
  const at::Tensor place =
      param.unsharded_flat().narrow(0, comm.rank() * piece.numel(), piece.numel());
  return place.copy_(piece, /*non_blocking=*/true);
}

void start_packed_gather(GatherInFlight& in_flight, Comm& comm) {
  int64_t row_bytes = 0;
  for (const ShardedParam* param : in_flight.packed_params) {
    row_bytes += packed_slot_bytes(param->unsharded_bytes() / comm.size());
  }
  const at::Device device = in_flight.packed_params.front()->unsharded().device();
  const at::Tensor buffer =
      in_flight.buffers->empty({comm.size(), row_bytes}, at::device(device).dtype(at::kByte));
  const at::Tensor own = buffer[comm.rank()];
  int64_t offset = 0;
  CopyList copies;
  for (const ShardedParam* param : in_flight.packed_params) {
    const int64_t bytes = param->unsharded_bytes() / comm.size();
    copies.add(stored_piece(*param, in_flight.source),
               own.narrow(0, offset, bytes).view(param->compute_dtype()));
    offset += packed_slot_bytes(bytes);
  }
  copies.run();
  in_flight.packed_buffer = buffer;
  const auto names = [&] { return names_of(in_flight.packed_params); };
  const CollectiveSubject subject(names);
  in_flight.packed = comm.all_gather(buffer.view({-1}), own);
}

// Rank-major rows of parameters -> each parameter's storage.
void copy_out_packed_gather(const GatherInFlight& in_flight, const Comm& comm) {
  int64_t offset = 0;
  CopyList copies;
  for (const ShardedParam* param : in_flight.packed_params) {
    const int64_t bytes = param->unsharded_bytes() / comm.size();
    const at::Tensor rows =
        in_flight.packed_buffer.narrow(1, offset, bytes).view(param->compute_dtype());
    const at::Tensor out = param->unsharded_flat();
    if (in_flight.source == GatherSource::kSlices || param->layout().chunks_are_contiguous()) {
      copies.add(rows, out.view(rows.sizes()));
    } else {
      chunks_to_parameter(param->layout(), rows, out);
    }
    offset += packed_slot_bytes(bytes);
  }
  copies.run();
}

GatherInFlight::Separate start_extended_gather(ShardedParam& param, Comm& comm,
                                               const GatherOptions& options) {
  const at::Tensor piece =
      options.extension->pre_all_gather(param, param.shard_flat(), *options.mesh);
  FSDP2_CHECK(piece.defined() && piece.dim() == 1 && piece.is_contiguous(), Code::kCallback,
              "pre_all_gather of {}: expected a contiguous 1-D tensor", param.name());
  FSDP2_CHECK(piece.device() == param.unsharded().device(), Code::kCallback,
              "pre_all_gather of {}: expected a tensor on {}, found one on {}", param.name(),
              param.unsharded().device().str(), piece.device().str());
  at::Tensor sent = piece;
  at::Tensor rows;
  if (options.in_group_memory) {
    rows = options.buffers->empty({comm.size(), piece.numel()}, piece.options());
    sent = rows[comm.rank()].copy_(piece);
  } else {
    rows = at::empty({comm.size(), piece.numel()}, piece.options());
  }
  const auto names = [&] { return names_of({&param}); };
  const CollectiveSubject subject(names);
  CommWork work = comm.all_gather(rows.view({-1}).view(at::kByte), sent.view(at::kByte));
  return {&param, std::move(work), rows};
}

void finish_extended_gather(GatherInFlight::Separate& gather, const AllGatherExtension& extension) {
  gather.work.wait_on_stream();
  const ShardedParam& param = *gather.param;
  const ShardLayout& layout = param.layout();
  const at::Tensor flat = param.unsharded_flat();
  if (layout.chunks_are_contiguous()) {
    extension.post_all_gather(param, gather.rows, flat.view({layout.world, -1}));
  } else {
    const at::Tensor chunks = at::empty({layout.world, layout.padded_numel()}, flat.options());
    extension.post_all_gather(param, gather.rows, chunks);
    chunks_to_parameter(layout, chunks, flat);
  }
}

}  // namespace

// Slices are cut from the gathered parameter as it lies in memory, so theirs are contiguous always.
bool gathers_direct(const ShardedParam& param, CommPath path, GatherSource source) {
  const bool contiguous = source == GatherSource::kSlices || param.layout().chunks_are_contiguous();
  return contiguous && goes_direct(param, path);
}

std::string names_of(const std::vector<ShardedParam*>& params) {
  if (params.empty() || params.front()->names().empty()) {
    return "";  // the root is not known
  }
  const std::string first = params.front()->name();
  return params.size() == 1 ? first : fmt::format("{} and {} more", first, params.size() - 1);
}

// Each slot starts aligned, since dtypes may differ.
int64_t packed_slot_bytes(int64_t piece_bytes) {
  constexpr int64_t kAlignment = 64;
  return (piece_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool reduces_direct(const ShardedParam& param, CommPath path) {
  return param.layout().even() && gathers_direct(param, path);
}

GatherInFlight start_all_gather(const std::vector<ShardedParam*>& params, Comm& comm,
                                const GatherOptions& options) {
  GatherInFlight in_flight;
  in_flight.source = options.source;
  in_flight.buffers = options.buffers;
  in_flight.extension = options.extension;
  CopyList casts;
  for (ShardedParam* param : params) {
    if (param->is_whole()) {
      continue;
    }
    if (options.source == GatherSource::kShards && options.extension) {
      in_flight.extended.push_back(start_extended_gather(*param, comm, options));
    } else if (comm.size() == 1) {
      casts.add(param->shard_flat(), param->unsharded_flat());
    } else if (gathers_direct(*param, options.path, options.source)) {
      const auto names = [&] { return names_of({param}); };
      const CollectiveSubject subject(names);
      in_flight.direct.push_back(
          comm.all_gather(param->unsharded_flat(), gather_input(*param, comm, options)));
    } else {
      in_flight.packed_params.push_back(param);
    }
  }
  casts.run();
  if (!in_flight.packed_params.empty()) {
    start_packed_gather(in_flight, comm);
  }
  return in_flight;
}

void finish_all_gather(GatherInFlight& in_flight, Comm& comm) {
  for (CommWork& work : in_flight.direct) {
    work.wait_on_stream();
  }
  for (GatherInFlight::Separate& gather : in_flight.extended) {
    finish_extended_gather(gather, *in_flight.extension);
  }
  if (!in_flight.packed_params.empty()) {
    in_flight.packed.wait_on_stream();
    copy_out_packed_gather(in_flight, comm);
    in_flight.buffers->drop(in_flight.packed_buffer);
  }
  in_flight = {};
}

}  // namespace fsdp2::fsdp
