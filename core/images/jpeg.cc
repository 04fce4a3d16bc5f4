#include "core/images/jpeg.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cstdio>  // jpeglib.h needs it before itself

#include "core/base/error.h"
#include "core/images/orientation.h"

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

namespace fsdp2::images {

namespace {

// A file may have many that change nothing, each of which takes as long as the whole image.
constexpr int kMostScans = 100;

// The library is compiled so that an exception passes through it; the reader's destructor frees
// what it holds.
[[noreturn]] void refuse(j_common_ptr info) {
  std::array<char, JMSG_LENGTH_MAX> text{};
  info->err->format_message(info, text.data());
  fail(Code::kCorruptData, "is no sound JPEG: {}", text.data());
}

// The rest of a file that ends too early would be grey.
void hear(j_common_ptr info, int level) {
  if (level < 0 && info->err->msg_code == JWRN_JPEG_EOF) {
    refuse(info);
  }
}

void say_nothing(j_common_ptr /*info*/) {}

void count_scans(j_common_ptr info) {
  const auto* reader = reinterpret_cast<const jpeg_decompress_struct*>(info);
  FSDP2_CHECK(reader->input_scan_number <= kMostScans, Code::kCorruptData,
              "is no sound JPEG: it has more than {} scans", kMostScans);
}

class JpegReader {
 public:
  explicit JpegReader(ByteSpan file) : JpegReader() {
    jpeg_mem_src(&info_, file.data(), file.size());
    jpeg_save_markers(&info_, kExifMarker, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    FSDP2_CHECK(info_.num_components == 1 || info_.num_components == 3, Code::kUnsupported,
                "is a JPEG of {} components: expected grey or RGB", info_.num_components);
    FSDP2_CHECK(int64_t{info_.image_width} * info_.image_height <= kMostPixels, Code::kUnsupported,
                "has {} x {} pixels: expected at most {}", info_.image_width, info_.image_height,
                kMostPixels);
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // Before it is turned.
  ImageSize size() const { return {info_.image_height, info_.image_width}; }

  Orientation orientation() const {
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr;
         marker = marker->next) {
      const ByteSpan data(marker->data, marker->data_length);
      if (const auto found = find_orientation(data)) {
        return *found;
      }
    }
    return Orientation::kUpright;
  }

  at::Tensor pixels() {
    info_.out_color_space = JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.progress = &progress_;
    jpeg_start_decompress(&info_);
    const at::Tensor out =
        at::empty({size().height, size().width, 3}, at::device(at::kCPU).dtype(at::kByte));
    auto* data = out.mutable_data_ptr<uint8_t>();
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = data + int64_t{info_.output_scanline} * size().width * 3;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    return out;
  }

 private:
  static constexpr int kExifMarker = JPEG_APP0 + 1;

  JpegReader() {
    info_.err = jpeg_std_error(&error_);
    error_.error_exit = refuse;
    error_.emit_message = hear;
    error_.output_message = say_nothing;
    progress_.progress_monitor = count_scans;
    jpeg_create_decompress(&info_);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr error_{};
  jpeg_progress_mgr progress_{};
};

}  // namespace

ImageSize read_jpeg_size(ByteSpan file) {
  const JpegReader reader(file);
  return turned(reader.size(), reader.orientation());
}

at::Tensor decode_jpeg(ByteSpan file) {
  JpegReader reader(file);
  const Orientation orientation = reader.orientation();
  return turned(reader.pixels(), orientation);
}

}  // namespace fsdp2::images
