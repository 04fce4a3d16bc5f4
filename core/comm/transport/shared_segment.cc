#include "core/comm/transport/shared_segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace fsdp2 {

namespace {

constexpr size_t kCacheLine = 64;
constexpr size_t kPage = 4096;
constexpr uint64_t kToken = 0x66736470325f7368;  // what a mapped segment begins with

// A process holds a lock on the byte of its rank; the kernel gives it up when the process ends,
// whatever kills it.
bool set_lock(int file, int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return ::fcntl(file, F_OFD_SETLK, &lock) == 0;
}

std::string random_path() {
  std::random_device random;
  return fmt::format("/dev/shm/fsdp2-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(),
                     random());
}

std::vector<uint8_t> as_value(const std::string& text) { return {text.begin(), text.end()}; }

std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

// A name for a new file, which the file loses when this ends.
class PassingName {
 public:
  PassingName() : path_(random_path()) {}
  ~PassingName() { ::unlink(path_.c_str()); }
  PassingName(const PassingName&) = delete;
  PassingName& operator=(const PassingName&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace

struct SharedSegment::Header {
  std::atomic<uint64_t> token;
  alignas(kCacheLine) std::atomic<uint32_t> bell;
  alignas(kCacheLine) std::atomic<uint32_t> sleepers;
};

struct SharedSegment::Counter {
  alignas(kCacheLine) std::atomic<uint64_t> value;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

SharedSegment::SharedSegment(std::unique_ptr<OwnFile> file, std::byte* base, int size)
    : file_(std::move(file)), base_(base), size_(size) {}

SharedSegment::~SharedSegment() { ::munmap(base_, bytes_for(size_)); }

// Header, written[size], read[size][size], rings.
size_t SharedSegment::bytes_for(int size) {
  const auto ranks = static_cast<size_t>(size);
  const size_t counters = (ranks + ranks * ranks) * sizeof(Counter);
  const size_t front = (sizeof(Header) + counters + kPage - 1) / kPage * kPage;
  return front + ranks * kRingBytes;
}

SharedSegment::Header& SharedSegment::header() const { return *reinterpret_cast<Header*>(base_); }

std::byte* SharedSegment::ring(int rank) const {
  return base_ + bytes_for(size_) - static_cast<size_t>(size_ - rank) * kRingBytes;
}

std::atomic<uint64_t>& SharedSegment::written(int rank) const {
  return (reinterpret_cast<Counter*>(base_ + sizeof(Header)) + rank)->value;
}

std::atomic<uint64_t>& SharedSegment::read(int rank, int reader) const {
  return (reinterpret_cast<Counter*>(base_ + sizeof(Header)) + size_ + rank * size_ + reader)
      ->value;
}

uint32_t SharedSegment::bell() const { return header().bell.load(std::memory_order_acquire); }

void SharedSegment::ring_bell() const {
  Header& shared = header();
  shared.bell.fetch_add(1, std::memory_order_seq_cst);
  if (shared.sleepers.load(std::memory_order_seq_cst) > 0) {
    ::syscall(SYS_futex, &shared.bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
}

void SharedSegment::sleep(uint32_t seen, std::chrono::microseconds time) const {
  Header& shared = header();
  struct timespec limit = {};
  limit.tv_sec = time.count() / 1000000;
  limit.tv_nsec = time.count() % 1000000 * 1000;
  shared.sleepers.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &shared.bell, FUTEX_WAIT, seen, &limit, nullptr, 0);
  shared.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

bool SharedSegment::has_left(int rank) const {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return ::fcntl(file_->descriptor(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

// Null if the file cannot be opened, mapped or locked.
std::unique_ptr<SharedSegment> SharedSegment::map(const std::string& path, int flags, int rank,
                                                  int size) {
  auto file = std::make_unique<OwnFile>(path, O_RDWR | flags, S_IRUSR | S_IWUSR);
  if (!file->is_open()) {
    return nullptr;
  }
  const size_t bytes = bytes_for(size);
  // Reserved now: a page that /dev/shm has no room for would kill the process when it is touched.
  const bool is_reserved =
      (flags & O_CREAT) == 0 || ::posix_fallocate(file->descriptor(), 0, bytes) == 0;
  const bool is_ready = is_reserved && set_lock(file->descriptor(), rank);
  std::byte* const base = is_ready ? file->map(bytes) : nullptr;
  if (base == nullptr) {
    return nullptr;
  }
  return std::unique_ptr<SharedSegment>(new SharedSegment(std::move(file), base, size));
}

std::unique_ptr<SharedSegment> SharedSegment::create(const std::string& path, int size) {
  std::unique_ptr<SharedSegment> segment = map(path, O_CREAT | O_EXCL, 0, size);
  if (segment) {
    segment->header().token.store(kToken, std::memory_order_release);
  }
  return segment;
}

std::unique_ptr<SharedSegment> SharedSegment::open(c10d::Store& store, int rank, int size,
                                                   std::chrono::milliseconds timeout) {
  std::unique_ptr<SharedSegment> segment;
  if (rank == 0) {
    bool everyone = false;
    {
      const PassingName name;  // the mappings live on without it
      segment = create(name.path(), size);
      store.set("path", as_value(segment ? name.path() : "-"));
      everyone = segment != nullptr;
      for (int other = 1; other < size; ++other) {
        const std::string key = fmt::format("mapped{}", other);
        store.wait({key}, timeout);
        everyone = everyone && get_text(store, key) == "yes";
      }
    }
    store.set("shared", as_value(everyone ? "yes" : "no"));
    return everyone ? std::move(segment) : nullptr;
  }
  store.wait({"path"}, timeout);
  const std::string path = get_text(store, "path");
  segment = path == "-" ? nullptr : map(path, 0, rank, size);
  const bool mapped = segment && segment->header().token.load(std::memory_order_acquire) == kToken;
  store.set(fmt::format("mapped{}", rank), as_value(mapped ? "yes" : "no"));
  store.wait({"shared"}, timeout);
  return get_text(store, "shared") == "yes" ? std::move(segment) : nullptr;
}

}  // namespace fsdp2
