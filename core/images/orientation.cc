#include "core/images/orientation.h"

#include <algorithm>
#include <string_view>

namespace fsdp2::images {

namespace {

// The numbers of a TIFF file, of which Exif is one. Nothing outside it is read.
class Tiff {
 public:
  explicit Tiff(ByteSpan bytes) : bytes_(bytes) {}

  bool is_sound() const {
    return bytes_.size() >= 8 && (bytes_[0] == 'I' || bytes_[0] == 'M') && bytes_[1] == bytes_[0] &&
           number(2, 2) == 42;
  }
  // The number that `size` bytes there spell; 0 where there are none.
  uint32_t number(size_t offset, size_t size) const {
    if (offset > bytes_.size() || bytes_.size() - offset < size) {
      return 0;
    }
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      const bool is_little = bytes_[0] == 'I';
      value |= uint32_t{bytes_[offset + i]} << (8 * (is_little ? i : size - 1 - i));
    }
    return value;
  }

 private:
  ByteSpan bytes_;
};

}  // namespace

std::optional<Orientation> find_orientation(ByteSpan segment) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  constexpr uint32_t kTag = 0x0112;
  constexpr uint32_t kShort = 3;
  constexpr size_t kEntryBytes = 12;
  if (segment.size() < kExif.size() || !std::equal(kExif.begin(), kExif.end(), segment.begin())) {
    return std::nullopt;
  }
  const Tiff tiff(segment.slice(kExif.size()));
  if (!tiff.is_sound()) {
    return std::nullopt;
  }
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) == kTag && tiff.number(entry + 2, 2) == kShort) {
      const uint32_t value = tiff.number(entry + 8, 2);
      const bool is_known = value >= 1 && value <= 8;
      return is_known ? std::optional(static_cast<Orientation>(value)) : std::nullopt;
    }
  }
  return std::nullopt;
}

ImageSize turned(ImageSize size, Orientation orientation) {
  return orientation >= Orientation::kTransposed ? ImageSize{size.width, size.height} : size;
}

at::Tensor turned(const at::Tensor& pixels, Orientation orientation) {
  switch (orientation) {
    case Orientation::kUpright:
      return pixels;
    case Orientation::kMirrored:
      return pixels.flip(1);
    case Orientation::kUpsideDown:
      return pixels.flip({0, 1});
    case Orientation::kUpsideDownMirrored:
      return pixels.flip(0);
    case Orientation::kTransposed:
      return pixels.transpose(0, 1).contiguous();
    case Orientation::kQuarterClockwise:
      return pixels.transpose(0, 1).flip(1);
    case Orientation::kTransversed:
      return pixels.transpose(0, 1).flip({0, 1});
    case Orientation::kQuarterBack:
      return pixels.transpose(0, 1).flip(0);
  }
  return pixels;
}

}  // namespace fsdp2::images
