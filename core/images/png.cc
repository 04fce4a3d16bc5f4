#include "core/images/png.h"

#include <ATen/ops/empty.h>
#include <png.h>

#include <algorithm>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::images {

namespace {

constexpr uint32_t kMostSide = 65500;  // a JPEG's, too
// A text of 8 MB takes 8 kB in the file, and there may be 1000 of them. To libpng, 0 is no limit.
constexpr uint32_t kKeepNoTexts = 1;

// The library is compiled so that an exception passes through it; the reader's destructor frees
// what it holds.
[[noreturn]] void refuse_png(png_structp /*png*/, png_const_charp text) {
  fail(Code::kCorruptData, "is no sound PNG: {}", text);
}

void pass_over(png_structp /*png*/, png_const_charp /*text*/) {}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* rest = static_cast<ByteSpan*>(png_get_io_ptr(png));
  FSDP2_CHECK(count <= rest->size(), Code::kCorruptData, "is no sound PNG: it ends too early");
  std::copy_n(rest->begin(), count, out);
  *rest = rest->slice(count);
}

class PngReader {
 public:
  explicit PngReader(ByteSpan file) : PngReader() {
    FSDP2_CHECK(info_ != nullptr, Code::kOutOfMemory, "libpng has no memory for a reader");
    rest_ = file;
    png_set_chunk_cache_max(png_, kKeepNoTexts);
    png_set_read_fn(png_, &rest_, read_bytes);
    png_set_user_limits(png_, kMostSide, kMostSide);
    png_read_info(png_, info_);
    FSDP2_CHECK(size().height * size().width <= kMostPixels, Code::kUnsupported,
                "has {} x {} pixels: expected at most {}", size().width, size().height,
                kMostPixels);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  ImageSize size() const {
    return {png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
  }

  at::Tensor pixels() {
    widen_samples();
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const auto row_bytes = static_cast<size_t>(size().width) * 3;
    FSDP2_CHECK(png_get_rowbytes(png_, info_) == row_bytes, Code::kInternal,
                "libpng makes rows of {} bytes of {} pixels", png_get_rowbytes(png_, info_),
                size().width);
    const at::Tensor out =
        at::empty({size().height, size().width, 3}, at::device(at::kCPU).dtype(at::kByte));
    std::vector<png_bytep> rows;
    for (int64_t row = 0; row < size().height; ++row) {
      rows.push_back(out.mutable_data_ptr<uint8_t>() + static_cast<size_t>(row) * row_bytes);
    }
    png_read_image(png_, rows.data());
    return out;
  }

 private:
  PngReader()
      : png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, refuse_png, pass_over)) {
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
  }

  void widen_samples() {
    const int colour = png_get_color_type(png_, info_);
    if (colour == PNG_COLOR_TYPE_PALETTE) {
      png_set_palette_to_rgb(png_);
    } else if (colour == PNG_COLOR_TYPE_GRAY) {
      png_set_expand_gray_1_2_4_to_8(png_);
    }
  }

  ByteSpan rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

}  // namespace

ImageSize read_png_size(ByteSpan file) { return PngReader(file).size(); }

at::Tensor decode_png(ByteSpan file) { return PngReader(file).pixels(); }

}  // namespace fsdp2::images
