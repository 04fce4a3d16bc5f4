#include "core/ckpt/torch/zip.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr int64_t kLocalBytes = 30;
constexpr int64_t kCentralBytes = 46;
constexpr int64_t kEndBytes = 22;
constexpr int64_t kEnd64Bytes = 56;
constexpr int64_t kLocator64Bytes = 20;
constexpr int64_t kMaxCommentBytes = 0xFFFF;
constexpr uint16_t kZip64Extra = 1;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // in place of a number: it is in the zip64 extra field
constexpr uint16_t kEncrypted = 1;
constexpr uint16_t kSizesFollow = 8;
constexpr uint16_t kDeflate = 8;
constexpr uint64_t kMostUnpacked = 1032;  // times as many bytes as deflate can make of some
constexpr int64_t kMaxDirectoryBytes = int64_t{1} << 30;

// Little-endian numbers from front to back. REQUIRES: no more is taken than there is.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  uint64_t take(size_t count) {
    FSDP2_CHECK(count <= bytes_.size(), Code::kInternal, "a zip field beyond its record");
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) {
      value = value << 8 | static_cast<uint8_t>(bytes_[i]);
    }
    bytes_.remove_prefix(count);
    return value;
  }
  uint16_t take16() { return static_cast<uint16_t>(take(2)); }
  uint32_t take32() { return static_cast<uint32_t>(take(4)); }
  void skip(size_t count) { take(count); }
  size_t left() const { return bytes_.size(); }
  std::string_view take_bytes(size_t count) {
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }

 private:
  std::string_view bytes_;
};

struct Directory {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

struct Entry {
  std::string name;
  uint16_t flags = 0;
  uint32_t checksum = 0;
  uint64_t bytes = 0;
  uint64_t in_file = 0;  // bytes: fewer than the entry has, if it is packed
  bool is_packed = false;
  uint64_t header = 0;  // where its local header is
};

class ZipReader {
 public:
  ZipReader(const ByteSource& file, int64_t offset, int64_t length, const std::string& label,
            ZipEntries allowed)
      : file_(file), offset_(offset), length_(length), label_(label), allowed_(allowed) {}

  std::unordered_map<std::string, ZipRecord> read() {
    const Directory directory = find_directory();
    check(directory.offset <= static_cast<uint64_t>(length_) &&
              directory.bytes <= static_cast<uint64_t>(length_) - directory.offset &&
              directory.bytes <= kMaxDirectoryBytes,
          "its directory of {} bytes at {} does not fit in its {} bytes", directory.bytes,
          directory.offset, length_);
    check(directory.entries <= directory.bytes / kCentralBytes,
          "a directory of {} bytes cannot have {} entries", directory.bytes, directory.entries);
    data_end_ = static_cast<int64_t>(directory.offset);
    const std::string text = part(data_end_, static_cast<int64_t>(directory.bytes));
    Fields fields(text);
    for (uint64_t i = 0; i < directory.entries; ++i) {
      place(read_entry(fields));
    }
    check(fields.left() == 0, "{} bytes of its directory are left over", fields.left());
    check_disjoint();
    return std::move(records_);
  }

 private:
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> text, Args&&... args) const {
    if (!condition) {
      fail(Code::kCorruptData, "{}: damaged zip archive: {}", label_,
           fmt::format(text, std::forward<Args>(args)...));
    }
  }

  std::string part(int64_t begin, int64_t count) const {
    std::string bytes(static_cast<size_t>(count), '\0');
    file_.read(offset_ + begin, count, bytes.data());
    return bytes;
  }

  // The end record is the last thing but for a comment of a length that it gives.
  Directory find_directory() const {
    const int64_t tail_bytes = std::min(length_, kEndBytes + kMaxCommentBytes);
    const int64_t tail_begin = length_ - tail_bytes;
    const std::string tail = part(tail_begin, tail_bytes);
    for (int64_t at = tail_bytes - kEndBytes; at >= 0; --at) {
      Fields fields(std::string_view(tail).substr(static_cast<size_t>(at)));
      if (fields.take32() != kEndSignature) {
        continue;
      }
      Fields comment(std::string_view(tail).substr(static_cast<size_t>(at + kEndBytes - 2)));
      if (comment.take16() == tail_bytes - at - kEndBytes) {
        return read_end(fields, tail_begin + at);
      }
    }
    fail(Code::kCorruptData, "{}: no end of a zip archive found: incomplete, or not of torch.save",
         label_);
  }

  Directory read_end(Fields fields, int64_t end) const {
    const uint16_t part_number = fields.take16();
    const uint16_t directory_part = fields.take16();
    Directory directory;
    fields.skip(2);
    directory.entries = fields.take16();
    directory.bytes = fields.take32();
    directory.offset = fields.take32();
    check(part_number == directory_part && (part_number == 0 || part_number == 0xFFFF),
          "it is one of several parts");
    if (end >= kLocator64Bytes) {
      const std::string locator = part(end - kLocator64Bytes, kLocator64Bytes);
      Fields locator_fields(locator);
      if (locator_fields.take32() == kLocator64Signature) {
        locator_fields.skip(4);
        return read_end64(locator_fields.take(8), end - kLocator64Bytes);
      }
    }
    return directory;
  }

  Directory read_end64(uint64_t at, int64_t limit) const {
    check(limit >= kEnd64Bytes && at <= static_cast<uint64_t>(limit - kEnd64Bytes),
          "its 64-bit end record is at {}", at);
    const std::string text = part(static_cast<int64_t>(at), kEnd64Bytes);
    Fields fields(text);
    check(fields.take32() == kEnd64Signature, "no 64-bit end record at {}", at);
    fields.take(8);  // its length
    fields.take32();
    check(fields.take32() == 0 && fields.take32() == 0, "it is one of several parts");
    fields.take(8);
    Directory directory;
    directory.entries = fields.take(8);
    directory.bytes = fields.take(8);
    directory.offset = fields.take(8);
    return directory;
  }

  Entry read_entry(Fields& fields) const {
    check(fields.left() >= kCentralBytes && fields.take32() == kCentralSignature,
          "no directory entry where one is expected");
    Entry entry;
    fields.skip(4);  // versions
    entry.flags = fields.take16();
    const uint16_t method = fields.take16();
    fields.skip(4);  // time
    entry.checksum = fields.take32();
    entry.in_file = fields.take32();
    entry.bytes = fields.take32();
    const size_t name_bytes = fields.take16();
    const size_t extra_bytes = fields.take16();
    const size_t comment_bytes = fields.take16();
    fields.skip(2);  // part
    fields.skip(6);  // attributes
    entry.header = fields.take32();
    check(name_bytes + extra_bytes + comment_bytes <= fields.left(),
          "a directory entry reaches beyond the directory");
    entry.name = fields.take_bytes(name_bytes);
    take_zip64(Fields(fields.take_bytes(extra_bytes)), entry.bytes, entry.in_file, entry.header);
    fields.take_bytes(comment_bytes);
    entry.is_packed = method == kDeflate && allowed_ == ZipEntries::kStoredOrPacked;
    FSDP2_CHECK((method == 0 || entry.is_packed) && (entry.flags & kEncrypted) == 0,
                Code::kUnsupported,
                "{}: the zip entry {} is compressed or encrypted, which torch.save never does: "
                "load it in Python and save it again",
                label_, printable_name(entry.name));
    check(entry.is_packed ? entry.in_file > 0 && entry.bytes / kMostUnpacked <= entry.in_file
                          : entry.in_file == entry.bytes,
          "entry {} has {} bytes in {}", printable_name(entry.name), entry.bytes, entry.in_file);
    return entry;
  }

  // Numbers too large for 32 bits, in this order, only those that are.
  void take_zip64(Fields extra, uint64_t& bytes, uint64_t& packed, uint64_t& header) const {
    while (extra.left() >= 4) {
      const uint16_t id = extra.take16();
      const uint16_t count = extra.take16();
      check(count <= extra.left(), "an extra field reaches beyond its entry");
      Fields field(extra.take_bytes(count));
      if (id != kZip64Extra) {
        continue;
      }
      for (uint64_t* number : {&bytes, &packed, &header}) {
        if (*number == kIn64) {
          check(field.left() >= 8, "a 64-bit number is missing");
          *number = field.take(8);
        }
      }
      return;
    }
  }

  // Finds an entry's data and compares the entry with what the directory says.
  void place(const Entry& entry) {
    const std::string name = printable_name(entry.name);
    check(
        data_end_ >= kLocalBytes && entry.header <= static_cast<uint64_t>(data_end_ - kLocalBytes),
        "entry {} begins at {}, beyond the data", name, entry.header);
    const auto begin = static_cast<int64_t>(entry.header);
    const std::string local = part(begin, kLocalBytes);
    Fields fields(local);
    check(fields.take32() == kLocalSignature, "no entry at {}, where {} should be", begin, name);
    fields.skip(2);
    const uint16_t flags = fields.take16();
    const uint16_t method = fields.take16();
    fields.skip(4);
    fields.skip(4);
    const uint32_t packed = fields.take32();
    const uint32_t bytes = fields.take32();
    const int64_t name_bytes = fields.take16();
    const int64_t extra_bytes = fields.take16();
    check(method == (entry.is_packed ? kDeflate : 0) && (flags & kEncrypted) == 0,
          "entry {} is compressed", name);
    const bool sizes_agree =
        (packed == entry.in_file || packed == kIn64) && (bytes == entry.bytes || bytes == kIn64);
    check((flags & kSizesFollow) != 0 || sizes_agree,
          "entry {} has {} bytes, its directory says {}", name, bytes, entry.bytes);
    const int64_t data = begin + kLocalBytes + name_bytes + extra_bytes;
    check(data <= data_end_ && entry.in_file <= static_cast<uint64_t>(data_end_ - data),
          "entry {} of {} bytes at {} reaches beyond the data", name, entry.in_file, data);
    check(part(begin + kLocalBytes, name_bytes) == entry.name,
          "the entry at {} has another name than its directory says: {}", begin, name);
    const auto in_file = static_cast<int64_t>(entry.in_file);
    spans_.emplace_back(begin, data + in_file);
    add(entry, {offset_ + data, static_cast<int64_t>(entry.bytes), entry.checksum,
                entry.is_packed ? in_file : 0});
  }

  void add(const Entry& entry, ZipRecord record) {
    const size_t slash = entry.name.find('/');
    const std::string folder = entry.name.substr(0, slash);
    check(slash != std::string::npos && slash > 0, "entry {} is in no folder",
          printable_name(entry.name));
    check(folder_.empty() || folder == folder_, "entries are in the folders {} and {}",
          printable_name(folder_), printable_name(folder));
    folder_ = folder;
    check(records_.emplace(entry.name.substr(slash + 1), record).second, "two entries are named {}",
          printable_name(entry.name));
  }

  void check_disjoint() {
    std::sort(spans_.begin(), spans_.end());
    for (size_t i = 1; i < spans_.size(); ++i) {
      check(spans_[i].first >= spans_[i - 1].second, "the entries at {} and {} overlap",
            spans_[i - 1].first, spans_[i].first);
    }
  }

  const ByteSource& file_;
  const int64_t offset_;
  const int64_t length_;
  const std::string& label_;
  const ZipEntries allowed_;
  int64_t data_end_ = 0;
  std::string folder_;
  std::vector<std::pair<int64_t, int64_t>> spans_;
  std::unordered_map<std::string, ZipRecord> records_;
};

}  // namespace

std::unordered_map<std::string, ZipRecord> read_zip_directory(const ByteSource& file,
                                                              int64_t offset, int64_t length,
                                                              const std::string& label,
                                                              ZipEntries allowed) {
  return ZipReader(file, offset, length, label, allowed).read();
}

}  // namespace fsdp2::ckpt
