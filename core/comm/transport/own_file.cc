#include "core/comm/transport/own_file.h"

#include <pthread.h>
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

}  // namespace

OwnFile::OwnFile(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard<std::mutex> lock(own_files().mutex);
  own_files().descriptors.insert(descriptor);
}

OwnFile::~OwnFile() {
  const std::lock_guard<std::mutex> lock(own_files().mutex);
  if (own_files().descriptors.erase(descriptor_) > 0) {  // otherwise this is a fork
    ::close(descriptor_);
  }
}

}  // namespace fsdp2
