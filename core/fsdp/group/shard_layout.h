// Who holds what: integer arithmetic only.
//
// Dim `dim` of size n is cut over `world` ranks like torch.chunk: c = ceil(n / world) rows each,
// full chunks first, so that trailing ranks may hold fewer rows or none. Every rank stores a chunk
// of c rows, zero-filled behind its own: the gathered chunks of a dim-0 layout are then the
// parameter itself followed by padding.
//
//   5 rows over 4 ranks:  [0,2) [2,4) [4,5) [5,5)   chunk 2, padded total 8
//
// The chunks of another dim lie apart in the parameter; such a dim must divide evenly, so that the
// chunks together are the parameter without padding.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace fsdp2::fsdp {

struct ShardLayout {
  std::vector<int64_t> global_shape;
  int dim = 0;
  int world = 1;
  int rank = 0;

  int64_t chunk = 0;   // rows a rank stores
  int64_t start = 0;   // first own row
  int64_t length = 0;  // own rows, 0 on trailing ranks

  // dim: negative ones count from the end. Errors: kInvalidArgument for a 0-dim shape ("use one
  // element in one dim") or a bad dim, kUnsupported for a dim other than 0 that does not divide.
  static ShardLayout make(at::IntArrayRef global_shape, int dim, int rank, int world);

  std::vector<int64_t> local_shape() const;
  std::vector<int64_t> padded_shape() const;
  int64_t global_numel() const;
  int64_t local_numel() const;
  int64_t padded_numel() const;  // of one rank's chunk
  bool even() const { return chunk * world == global_shape[static_cast<size_t>(dim)]; }
  // Whether the ranks' chunks one after the other are the parameter (with padding behind it).
  bool chunks_are_contiguous() const { return dim == 0 || world == 1; }
  // Elements before the sharded dim: a chunk is so many runs of padded_numel / outer_numel.
  int64_t outer_numel() const;
};

}  // namespace fsdp2::fsdp
