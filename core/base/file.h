// Files for checkpoints and data sets: mapped for reading, read whole as small texts, and written
// so that a crash or a full disk leaves the old file or the new one, never half of one.
//
// Every error is kNotFound (no such file or directory) or kIo, names the path and gives the
// system's text; Error::native_code is errno.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdp2 {

using ByteSpan = c10::ArrayRef<uint8_t>;

// A regular file, open and mapped for reading. Immutable: any thread may use it.
//
// Touching mapped bytes that another program has cut off raises SIGBUS. A caller that reads
// `bytes()` long after opening therefore calls `check_size` first; bulk copies go through `read`,
// which reports a short file as an error.
class MappedFile {
 public:
  explicit MappedFile(std::string path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  // Lives as long as this object.
  ByteSpan bytes() const { return {data_, static_cast<size_t>(size_)}; }

  // kIo if the file is now shorter than when it was opened.
  void check_size() const;

  // Copies bytes [offset, offset + count) to `out` without touching the mapping.
  // REQUIRES: the range is inside [0, size()).
  void read(int64_t offset, int64_t count, void* out) const;

 private:
  std::string path_;
  int file_ = -1;
  int64_t size_ = 0;
  const uint8_t* data_ = nullptr;
};

// The whole of a regular file; kIo if it is larger than max_bytes.
std::string read_text_file(const std::string& path, int64_t max_bytes);

// Where a file that is written under `path` goes: a symbolic link stands for what it points to. kIo
// if something other than a regular file is there, which a file may not replace.
std::string resolve_file(const std::string& path);

// Writes a file that appears under `path` as a whole or not at all.
//
//   AtomicFile file("out/model.safetensors");
//   file.write(data, bytes);
//   file.commit();
//
// Until commit the bytes are in `path.tmp-<unique>` in the same directory. Commit syncs them to
// disk, renames the file to `path` (which replaces a file of that name) and syncs the directory.
// Without commit the destructor removes the file. The path is resolve_file's. One thread at a time.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t bytes_written() const { return bytes_written_; }

  // After an error the file cannot be committed any more.
  void write(const void* data, size_t count);
  // Replaces bytes that were written before. REQUIRES: all of them were.
  void overwrite(int64_t offset, const void* data, size_t count);
  void commit();

 private:
  // Throws with errno's text; the temporary is gone afterwards.
  [[noreturn]] void fail_and_discard(const char* action, int error);
  void discard() noexcept;

  std::string path_;
  std::string temporary_;
  int file_ = -1;
  int64_t bytes_written_ = 0;
};

// Makes creations, renames and removals in a directory durable.
void sync_directory(const std::string& path);

// Text of an errno value.
std::string system_error_text(int error);

}  // namespace fsdp2
