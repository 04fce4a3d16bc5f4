#include "core/comm/transport/own_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace fsdp2 {

namespace {

// Locked while the process forks, so that the fork finds it whole.
struct OwnFiles {
  std::mutex mutex;
  std::set<int> descriptors;
};

OwnFiles& own_files() {
  static auto* const files = [] {
    pthread_atfork([] { own_files().mutex.lock(); }, [] { own_files().mutex.unlock(); },
                   [] {
                     OwnFiles& files = own_files();
                     for (const int descriptor : files.descriptors) {
                       ::close(descriptor);
                     }
                     files.descriptors.clear();
                     files.mutex.unlock();
                   });
    return new OwnFiles;  // outlives static destructors
  }();
  return *files;
}

int open_own(const std::string& path, int flags, mode_t mode) {
  const std::lock_guard<std::mutex> lock(own_files().mutex);
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (descriptor >= 0) {
    own_files().descriptors.insert(descriptor);
  }
  return descriptor;
}

}  // namespace

OwnFile::OwnFile(const std::string& path, int flags, mode_t mode)
    : descriptor_(open_own(path, flags, mode)) {}

OwnFile::~OwnFile() {
  const std::lock_guard<std::mutex> lock(own_files().mutex);
  if (own_files().descriptors.erase(descriptor_) > 0) {  // otherwise this is a fork
    ::close(descriptor_);
  }
}

std::byte* OwnFile::map(size_t bytes) const {
  const std::lock_guard<std::mutex> lock(own_files().mutex);
  void* const begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (begin == MAP_FAILED) {
    return nullptr;
  }
  ::madvise(begin, bytes, MADV_DONTFORK);
  return static_cast<std::byte*>(begin);
}

}  // namespace fsdp2
