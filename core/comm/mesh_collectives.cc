#include "core/comm/mesh_collectives.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/comm/all_gather_numbers.h"
#include "core/comm/byte_collectives.h"
#include "core/comm/world.h"

namespace fsdp2 {

namespace {

constexpr int64_t kMaxDims = 16;

using NotDifferentiated = at::AutoDispatchBelowADInplaceOrView;

// What a rank says about its tensor before any data moves.
struct Header {
  int64_t refused = 0;  // this rank's own arguments are wrong
  int64_t choice = 0;   // tensor dim and op
  int64_t dtype = 0;
  int64_t n_dims = 0;
  std::array<int64_t, kMaxDims> sizes{};

  std::vector<int64_t> shape() const { return {sizes.begin(), sizes.begin() + n_dims}; }
  at::ScalarType scalar_type() const { return static_cast<at::ScalarType>(dtype); }
};
constexpr int64_t kHeaderNumbers = 4 + kMaxDims;
static_assert(sizeof(Header) == kHeaderNumbers * sizeof(int64_t));

Header header_of(const Comm& comm, const at::Tensor& tensor, int64_t choice) {
  FSDP2_CHECK(tensor.defined(), Code::kInvalidArgument, "there is no tensor");
  FSDP2_CHECK(tensor.device().type() == comm.device().type(), Code::kInvalidArgument,
              "expected a tensor on the mesh's device, {}, found one on {}", comm.device().str(),
              tensor.device().str());
  FSDP2_CHECK(tensor.dim() <= kMaxDims, Code::kUnsupported, "tensor of {} dims: at most {}",
              tensor.dim(), kMaxDims);
  FSDP2_CHECK(tensor.layout() == at::kStrided, Code::kUnsupported, "expected a dense tensor");
  Header header;
  header.choice = choice;
  header.dtype = static_cast<int64_t>(tensor.scalar_type());
  header.n_dims = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header.sizes.begin());
  return header;
}

void check_dim(const at::Tensor& tensor, int64_t dim) {
  FSDP2_CHECK(0 <= dim && dim < tensor.dim(), Code::kInvalidArgument,
              "tensor dim {}: expected 0 to {}", dim, tensor.dim() - 1);
}

std::string describe(const Header& header) {
  return fmt::format("{} ({})", c10::toString(header.scalar_type()),
                     fmt::join(header.shape(), ", "));
}

// "rank 1 failed: ...; rank 2 failed: ...", of the ranks that refuse. Collective.
std::string describe_refusals(Comm& control, const std::vector<Header>& headers,
                              const std::string& mine) {
  const std::vector<std::string> reasons = all_gather_bytes(control, mine);
  std::vector<std::string> refusals;
  for (int rank = 0; rank < control.size(); ++rank) {
    if (headers[rank].refused != 0) {
      refusals.push_back(fmt::format("rank {} failed: {}", control.members()[rank], reasons[rank]));
    }
  }
  return fmt::format("{}", fmt::join(refusals, "; "));
}

// All ranks' headers, or the error that some of them have: this rank's own, or the others' news.
std::vector<Header> exchange_headers(const char* call, Comm& control,
                                     const std::exception_ptr& refused,
                                     const std::function<Header()>& local) {
  Header mine;
  std::exception_ptr error;
  std::string reason;
  try {
    if (refused != nullptr) {
      std::rethrow_exception(refused);
    }
    mine = local();
  } catch (...) {
    error = std::current_exception();
    reason = current_exception_text();
    mine.refused = 1;
  }
  const auto* numbers = reinterpret_cast<const int64_t*>(&mine);
  const std::vector<int64_t> all = all_gather_numbers(control, {numbers, numbers + kHeaderNumbers});
  std::vector<Header> headers(control.size());
  std::copy(all.begin(), all.end(), reinterpret_cast<int64_t*>(headers.data()));
  if (std::any_of(headers.begin(), headers.end(),
                  [](const Header& header) { return header.refused != 0; })) {
    const std::string refusals = describe_refusals(control, headers, reason);
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
    fail(Code::kPeerFailed, "{} in group {}: {}", call, control.name(), refusals);
  }
  return headers;
}

void check_choice(const char* call, const Comm& comm, const std::vector<Header>& headers) {
  for (int rank = 1; rank < comm.size(); ++rank) {
    FSDP2_CHECK(headers[0].choice == headers[rank].choice, Code::kInvalidArgument,
                "{} in group {}: ranks {} and {} pass another tensor dim or op", call, comm.name(),
                comm.members()[0], comm.members()[rank]);
  }
}

// Except for the size of `free_dim`, if that is not -1.
void check_alike(const char* call, const Comm& comm, const std::vector<Header>& headers,
                 int64_t free_dim = -1) {
  check_choice(call, comm, headers);
  for (int rank = 1; rank < comm.size(); ++rank) {
    Header first = headers[0];
    Header other = headers[rank];
    if (free_dim >= 0) {
      first.sizes[free_dim] = other.sizes[free_dim] = 0;
    }
    FSDP2_CHECK(first.dtype == other.dtype && first.shape() == other.shape(),
                Code::kInvalidArgument, "{} in group {}: rank {} has {}, rank {} has {}", call,
                comm.name(), comm.members()[0], describe(headers[0]), comm.members()[rank],
                describe(headers[rank]));
  }
}

Comm& comm_of(const Mesh& mesh, int mesh_dim) {
  FSDP2_CHECK(0 <= mesh_dim && mesh_dim < mesh.ndim(), Code::kInvalidArgument,
              "mesh dim {}: expected 0 to {}", mesh_dim, mesh.ndim() - 1);
  return mesh.comm(mesh_dim, Lane::kGather);
}

// REQUIRES: checked by comm_of.
Comm& control_of(const Mesh& mesh, int mesh_dim) { return mesh.comm(mesh_dim, Lane::kControl); }

struct Cut {
  int64_t chunk;   // rows of a whole piece
  int64_t start;   // first own row
  int64_t length;  // own rows
};

Cut cut_of(int64_t rows, const Comm& comm) {
  const int64_t chunk = (rows + comm.size() - 1) / comm.size();
  const int64_t start = std::min(chunk * comm.rank(), rows);
  return {chunk, start, std::min(chunk, rows - start)};
}

std::vector<int64_t> with_rows(std::vector<int64_t> shape, int64_t dim, int64_t rows) {
  shape[dim] = rows;
  return shape;
}

// The pieces of `whole` along dim, each padded with zeros to the rows of a whole piece, one behind
// the other in memory.
at::Tensor padded_pieces(const at::Tensor& whole, int64_t dim, int64_t chunk, int ranks) {
  std::vector<int64_t> shape = with_rows(whole.sizes().vec(), dim, chunk);
  shape.insert(shape.begin(), ranks);
  at::Tensor pieces = at::zeros(shape, whole.options());
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t start = std::min(rank * chunk, whole.size(dim));
    const int64_t length = std::min(chunk, whole.size(dim) - start);
    pieces[rank].narrow(dim, 0, length).copy_(whole.narrow(dim, start, length));
  }
  return pieces;
}

}  // namespace

void mesh_broadcast(const Mesh& mesh, int mesh_dim, at::Tensor tensor,
                    const std::exception_ptr& refused) {
  constexpr const char* kCall = "broadcast";
  Comm& comm = comm_of(mesh, mesh_dim);
  check_alike(kCall, comm, exchange_headers(kCall, control_of(mesh, mesh_dim), refused, [&] {
                return header_of(comm, tensor, 0);
              }));
  const NotDifferentiated guard;
  const at::Tensor flat = tensor.contiguous();
  if (flat.numel() > 0) {
    comm.broadcast(flat, 0).wait();
  }
  if (!flat.is_same(tensor)) {
    tensor.copy_(flat);
  }
}

at::Tensor mesh_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole, int64_t tensor_dim,
                        const std::exception_ptr& refused) {
  constexpr const char* kCall = "scatter";
  Comm& comm = comm_of(mesh, mesh_dim);
  const bool sends = comm.rank() == 0;
  const auto headers = exchange_headers(kCall, control_of(mesh, mesh_dim), refused, [&] {
    if (!sends) {
      FSDP2_CHECK(!whole.defined(), Code::kInvalidArgument,
                  "a tensor on rank {}: only the first rank of the dim passes one",
                  mesh.world().rank());
      Header nothing;
      nothing.choice = tensor_dim;
      return nothing;
    }
    const Header header = header_of(comm, whole, tensor_dim);
    check_dim(whole, tensor_dim);
    return header;
  });
  const Header& header = headers[0];
  check_choice(kCall, comm, headers);
  FSDP2_CHECK(header.n_dims > 0, Code::kUnsupported,
              "scatter on rank {} of a fake mesh: only the first rank of a dim knows the tensor",
              mesh.world().rank());
  const NotDifferentiated guard;
  const Cut cut = cut_of(header.shape()[tensor_dim], comm);
  const at::Tensor piece = at::zeros(with_rows(header.shape(), tensor_dim, cut.chunk),
                                     at::device(comm.device()).dtype(header.scalar_type()));
  if (piece.numel() > 0) {
    const at::Tensor pieces =
        sends ? padded_pieces(whole, tensor_dim, cut.chunk, comm.size()) : at::Tensor();
    comm.scatter(piece, pieces, 0).wait();
  }
  return piece.narrow(tensor_dim, 0, cut.length).contiguous();
}

at::Tensor mesh_all_gather(const Mesh& mesh, int mesh_dim, const at::Tensor& piece,
                           int64_t tensor_dim, const std::exception_ptr& refused) {
  constexpr const char* kCall = "all_gather";
  Comm& comm = comm_of(mesh, mesh_dim);
  const auto headers = exchange_headers(kCall, control_of(mesh, mesh_dim), refused, [&] {
    const Header header = header_of(comm, piece, tensor_dim);
    check_dim(piece, tensor_dim);
    return header;
  });
  check_alike(kCall, comm, headers, tensor_dim);
  const NotDifferentiated guard;
  int64_t chunk = 0;
  for (const Header& header : headers) {
    chunk = std::max(chunk, header.sizes[tensor_dim]);
  }
  std::vector<int64_t> shape = with_rows(piece.sizes().vec(), tensor_dim, chunk);
  at::Tensor mine = at::zeros(shape, piece.options());
  mine.narrow(tensor_dim, 0, piece.size(tensor_dim)).copy_(piece);
  shape.insert(shape.begin(), comm.size());
  const at::Tensor all = at::empty(shape, piece.options());
  if (mine.numel() > 0) {
    comm.all_gather(all, mine).wait();
  }
  std::vector<at::Tensor> pieces;
  for (int rank = 0; rank < comm.size(); ++rank) {
    pieces.push_back(all[rank].narrow(tensor_dim, 0, headers[rank].sizes[tensor_dim]));
  }
  return at::cat(pieces, tensor_dim);
}

at::Tensor mesh_reduce_scatter(const Mesh& mesh, int mesh_dim, const at::Tensor& whole,
                               int64_t tensor_dim, ReduceOp op, const std::exception_ptr& refused) {
  constexpr const char* kCall = "reduce_scatter";
  Comm& comm = comm_of(mesh, mesh_dim);
  const auto headers = exchange_headers(kCall, control_of(mesh, mesh_dim), refused, [&] {
    const Header header = header_of(comm, whole, tensor_dim * 8 + static_cast<int64_t>(op));
    check_dim(whole, tensor_dim);
    FSDP2_CHECK(op != ReduceOp::kMax, Code::kInvalidArgument, "expected sum or average, got max");
    FSDP2_CHECK(op != ReduceOp::kAverage || whole.is_floating_point(), Code::kInvalidArgument,
                "no average of {}: expected a floating-point tensor",
                c10::toString(whole.scalar_type()));
    return header;
  });
  check_alike(kCall, comm, headers);
  const NotDifferentiated guard;
  const Cut cut = cut_of(whole.size(tensor_dim), comm);
  const at::Tensor piece =
      at::zeros(with_rows(whole.sizes().vec(), tensor_dim, cut.chunk), whole.options());
  if (piece.numel() > 0) {
    comm.reduce_scatter(piece, padded_pieces(whole, tensor_dim, cut.chunk, comm.size()), op).wait();
  }
  return piece.narrow(tensor_dim, 0, cut.length).contiguous();
}

void mesh_all_reduce(const Mesh& mesh, int mesh_dim, at::Tensor tensor, ReduceOp op,
                     const std::exception_ptr& refused) {
  constexpr const char* kCall = "all_reduce";
  Comm& comm = comm_of(mesh, mesh_dim);
  check_alike(kCall, comm, exchange_headers(kCall, control_of(mesh, mesh_dim), refused, [&] {
                const Header header = header_of(comm, tensor, static_cast<int64_t>(op));
                FSDP2_CHECK(op != ReduceOp::kAverage || tensor.is_floating_point(),
                            Code::kInvalidArgument,
                            "no average of {}: expected a floating-point tensor",
                            c10::toString(tensor.scalar_type()));
                return header;
              }));
  const NotDifferentiated guard;
  const at::Tensor flat = tensor.contiguous();
  if (flat.numel() > 0) {
    comm.all_reduce(flat, op).wait();
  }
  if (!flat.is_same(tensor)) {
    tensor.copy_(flat);
  }
}

}  // namespace fsdp2
