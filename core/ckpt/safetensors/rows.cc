#include "core/ckpt/safetensors/rows.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/ckpt/safetensors/dtype.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// Elements that are converted at a time: the copy stays in the cache.
constexpr int64_t kConvertedAtOnce = int64_t{1} << 16;
// What a thread reads at least.
constexpr int64_t kBytesOfAThread = int64_t{4} << 20;

bool is_convertible(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf ||
         dtype == at::kDouble;
}

// Converts, or moves to out's device, as many elements as `out` has, flat, from the tensor's byte
// `first` on.
void read_converted(const ByteSource& source, const SafetensorsEntry& entry, int64_t first,
                    const at::Tensor& out) {
  const c10::AutoGradMode no_grad(false);  // of this thread
  const int64_t count = out.numel();
  const auto item_size = static_cast<int64_t>(c10::elementSize(entry.dtype));
  const at::Tensor part =
      at::empty({std::min(count, kConvertedAtOnce)}, at::device(at::kCPU).dtype(entry.dtype));
  for (int64_t done = 0; done < count;) {
    const int64_t now = std::min(count - done, kConvertedAtOnce);
    source.read(entry.offset + first + done * item_size, now * item_size, part.mutable_data_ptr());
    out.narrow(0, done, now).copy_(part.narrow(0, 0, now));
    done += now;
  }
}

// By as many threads as LibTorch has: one copies less than memory gives, and converts even less.
void read_by_threads(const SafetensorsFile& file, const SafetensorsEntry& entry, int64_t first,
                     const at::Tensor& out) {
  const bool is_as_stored = out.scalar_type() == entry.dtype;
  const auto out_size = static_cast<int64_t>(out.element_size());
  const auto item_size = static_cast<int64_t>(c10::elementSize(entry.dtype));
  const at::Tensor flat = out.view({-1});
  at::parallel_for(0, out.numel(), kBytesOfAThread / out_size, [&](int64_t begin, int64_t end) {
    const at::Tensor part = flat.narrow(0, begin, end - begin);
    const int64_t at = first + begin * item_size;
    if (is_as_stored) {
      file.read(entry, at, (end - begin) * item_size, part.mutable_data_ptr());
    } else {
      read_converted(*file.source(entry), entry, at, part);
    }
  });
}

}  // namespace

void read_rows(const SafetensorsFile& file, const SafetensorsEntry& entry, at::IntArrayRef shape,
               const char* expected_by, int64_t first_row, const at::Tensor& out) {
  const std::string name = printable_name(entry.name);
  FSDP2_CHECK(shape == at::IntArrayRef(entry.shape), Code::kCorruptData,
              "{}: {} says [{}], {} has [{}]", name, expected_by, fmt::join(shape, ", "),
              file.path(), fmt::join(entry.shape, ", "));
  FSDP2_CHECK(is_convertible(entry.dtype), Code::kUnsupported,
              "{}: is {} in {}, expected F32, BF16, F16 or F64", name,
              safetensors_dtype_name(entry.dtype), file.path());

  const bool has_rows = !shape.empty();
  const int64_t all_rows = has_rows ? shape[0] : 1;
  const int64_t rows = out.dim() > 0 ? out.size(0) : 1;
  const at::IntArrayRef row_shape = has_rows ? shape.slice(1) : at::IntArrayRef();
  const at::IntArrayRef out_row_shape = out.dim() > 0 ? out.sizes().slice(1) : at::IntArrayRef();
  FSDP2_CHECK(first_row >= 0 && first_row <= all_rows && rows <= all_rows - first_row &&
                  out_row_shape == row_shape,
              Code::kInvalidArgument,
              "{}: cannot read rows from {} on of [{}] into a tensor of [{}]", name, first_row,
              fmt::join(shape, ", "), fmt::join(out.sizes(), ", "));
  FSDP2_CHECK(out.is_contiguous() && is_convertible(out.scalar_type()), Code::kInvalidArgument,
              "{}: expected to read into a contiguous float tensor, found {} {}", name,
              out.is_contiguous() ? "a" : "a non-contiguous", c10::toString(out.scalar_type()));
  if (out.numel() == 0) {
    return;
  }
  FSDP2_CHECK(out.storage().nbytes() > 0, Code::kWrongState,
              "{}: the tensor to read into has no memory", name);

  const int64_t first = entry.bytes / all_rows * first_row;
  if (out.is_cpu()) {
    read_by_threads(file, entry, first, out.detach());
  } else {
    read_converted(*file.source(entry), entry, first, out.detach().view({-1}));
  }
}

}  // namespace fsdp2::ckpt
