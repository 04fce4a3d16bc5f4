#include "core/ckpt/bytes/tensor_box.h"

#include <ATen/Functions.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::ckpt {

namespace {

// What is read before it is copied, converted or moved to another device.
constexpr int64_t kBufferBytes = int64_t{1} << 22;

bool is_float(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kDouble;
}

// A box of the stored tensor and the memory that it goes to, halved until a part can be read at
// once.
class BoxReader {
 public:
  BoxReader(const ByteSource& file, at::ScalarType dtype, at::IntArrayRef stride,
            const std::string& label)
      : file_(file),
        dtype_(dtype),
        item_size_(static_cast<int64_t>(c10::elementSize(dtype))),
        stride_(stride),
        label_(label) {}

  // `offset`: of the box's first element, in the file.
  void read(int64_t offset, const at::Tensor& out) {
    if (is_direct(out)) {
      file_.read(offset, static_cast<int64_t>(out.nbytes()), out.mutable_data_ptr());
      check_bools(out.const_data_ptr(), out.numel());
      return;
    }
    const int64_t span = span_of(out);
    if (span * item_size_ <= kBufferBytes) {
      read_through_buffer(offset, span, out);
      return;
    }
    const int64_t dim = widest_dim(out);
    const int64_t half = out.size(dim) / 2;
    read(offset, out.narrow(dim, 0, half));
    read(offset + half * stride_[static_cast<size_t>(dim)] * item_size_,
         out.narrow(dim, half, out.size(dim) - half));
  }

 private:
  // Whether the box is one piece in the file, and `out` the same piece in memory.
  bool is_direct(const at::Tensor& out) const {
    if (!out.is_cpu() || out.scalar_type() != dtype_ || !out.is_contiguous()) {
      return false;
    }
    return is_row_major(out.sizes(), stride_);
  }

  // Elements from the first to the last of the box.
  int64_t span_of(const at::Tensor& out) const {
    int64_t span = 1;
    for (int64_t dim = 0; dim < out.dim(); ++dim) {
      span += (out.size(dim) - 1) * stride_[static_cast<size_t>(dim)];
    }
    return span;
  }

  int64_t widest_dim(const at::Tensor& out) const {
    int64_t widest = 0;
    int64_t most = -1;
    for (int64_t dim = 0; dim < out.dim(); ++dim) {
      const int64_t width = (out.size(dim) - 1) * stride_[static_cast<size_t>(dim)];
      if (width > most) {
        most = width;
        widest = dim;
      }
    }
    return widest;
  }

  void read_through_buffer(int64_t offset, int64_t span, const at::Tensor& out) {
    if (!buffer_.defined() || buffer_.numel() < span) {
      buffer_ = at::empty({span}, at::device(at::kCPU).dtype(dtype_));
    }
    file_.read(offset, span * item_size_, buffer_.mutable_data_ptr());
    check_bools(buffer_.const_data_ptr(), span);
    out.copy_(buffer_.as_strided(out.sizes(), stride_));
  }

  // A bool that is neither 0 nor 1 in memory would be undefined behaviour.
  void check_bools(const void* data, int64_t count) const {
    if (dtype_ != at::kBool) {
      return;
    }
    const auto* bytes = static_cast<const uint8_t*>(data);
    FSDP2_CHECK(std::all_of(bytes, bytes + count, [](uint8_t byte) { return byte <= 1; }),
                Code::kCorruptData, "{}: a bool is neither 0 nor 1", label_);
  }

  const ByteSource& file_;
  const at::ScalarType dtype_;
  const int64_t item_size_;
  const at::IntArrayRef stride_;
  const std::string& label_;
  at::Tensor buffer_;
};

void check_box(const StoredTensor& tensor, at::IntArrayRef begin, const at::Tensor& out,
               const std::string& label) {
  bool fits = out.defined() && begin.size() == tensor.shape.size() &&
              out.sizes().size() == tensor.shape.size();
  for (size_t dim = 0; fits && dim < tensor.shape.size(); ++dim) {
    fits = begin[dim] >= 0 && begin[dim] <= tensor.shape[dim] &&
           out.sizes()[dim] <= tensor.shape[dim] - begin[dim];
  }
  FSDP2_CHECK(fits, Code::kInvalidArgument,
              "{}: cannot read a box at [{}] of a tensor of [{}] into one of [{}]", label,
              fmt::join(begin, ", "), fmt::join(tensor.shape, ", "),
              fmt::join(out.defined() ? out.sizes() : at::IntArrayRef(), ", "));
  FSDP2_CHECK(is_readable_as(tensor.dtype, out.scalar_type()), Code::kInvalidArgument,
              "{}: holds a tensor of {}, which is not read as {}", label,
              c10::toString(tensor.dtype), c10::toString(out.scalar_type()));
  FSDP2_CHECK(out.numel() == 0 || out.storage().nbytes() > 0, Code::kWrongState,
              "{}: the tensor to read into has no memory", label);
}

}  // namespace

bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef stride) {
  int64_t run = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (sizes[dim] != 1 && stride[dim] != run) {
      return false;
    }
    run *= sizes[dim];
  }
  return true;
}

bool is_readable_as(at::ScalarType stored, at::ScalarType wanted) {
  return stored == wanted || (is_float(stored) && is_float(wanted));
}

void read_tensor_box(const ByteSource& file, int64_t record, const StoredTensor& tensor,
                     at::IntArrayRef begin, const at::Tensor& out, const std::string& label) {
  check_box(tensor, begin, out, label);
  if (out.numel() == 0) {
    return;
  }
  int64_t first = tensor.storage_offset;
  for (size_t dim = 0; dim < begin.size(); ++dim) {
    first += begin[dim] * tensor.stride[dim];
  }
  const auto item_size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
  BoxReader(file, tensor.dtype, tensor.stride, label)
      .read(record + first * item_size, out.detach());
}

}  // namespace fsdp2::ckpt
