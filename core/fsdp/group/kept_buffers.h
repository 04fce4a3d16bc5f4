// Memory that the gathers and reductions of a tree take in every step, kept from one to the next:
// each gets a buffer of its size that an earlier one has given back, and the allocator is asked
// only where there is none. So units of equal sizes take turns with as many buffers of each size as
// are in use at once, and after the first step none is added.
//
//   at::Tensor packed = buffers.empty({4, 1024}, options);
//   ...                     // a collective
//   buffers.drop(packed);   // its memory is the next one's
//
// A KeptBuffers holds memory of one stream, as the allocator does: who gives some back lets that
// stream follow its last use (side_streams.h), so who takes it next has nothing to wait for. With
// keeping off it hands everything on to the allocator, or to whoever gives memory in its place. One
// thread at a time.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

namespace fsdp2::fsdp {

class KeptBuffers {
 public:
  // So many bytes of the current stream, as the allocator's.
  using Source = std::function<c10::DataPtr(int64_t bytes)>;

  KeptBuffers() = default;
  explicit KeptBuffers(bool keeps) : keeps_(keeps) {}
  explicit KeptBuffers(Source source) : source_(std::move(source)) {}  // keeps nothing itself

  // Gives a tensor's storage memory of that many bytes. REQUIRES: it has none (nn::has_no_memory).
  void allocate(const at::Tensor& tensor, int64_t bytes);
  // Takes the memory of its storage away, whoever else has a view of it.
  void free(const at::Tensor& tensor);

  // As at::empty, of the current stream.
  at::Tensor empty(at::IntArrayRef sizes, const at::TensorOptions& options);
  // Ends a tensor that empty() has made. While memory is kept, views of it have none afterwards.
  void drop(at::Tensor& buffer);

  // What is kept goes back to the allocator; what is in use may be kept again later.
  void release();
  int64_t bytes() const { return bytes_; }  // kept now, and not in use
  int64_t taken() const { return taken_; }  // buffers that the allocator was asked for, so far

 private:
  using Size = std::pair<c10::DeviceIndex, int64_t>;  // where a buffer is, and its bytes

  void give(const at::Tensor& tensor, c10::DataPtr memory, int64_t bytes);

  bool keeps_ = false;
  Source source_;  // empty: the allocator
  std::map<Size, std::vector<c10::DataPtr>> kept_;
  int64_t bytes_ = 0;
  int64_t taken_ = 0;
};

// Those of a tree, by the stream that their memory belongs to.
struct TreeBuffers {
  TreeBuffers() = default;
  explicit TreeBuffers(bool keeps) : gather(keeps), compute(keeps) {}
  int64_t kept_bytes() const { return gather.bytes() + compute.bytes(); }

  KeptBuffers gather;   // gathered parameters, and what travels for them
  KeptBuffers compute;  // what reductions read, and slices
};

}  // namespace fsdp2::fsdp
