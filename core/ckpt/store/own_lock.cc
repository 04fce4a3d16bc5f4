#include "core/ckpt/store/own_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <unistd.h>

#include <mutex>
#include <set>

namespace fsdp2::ckpt {

// Those of this process.
struct OwnLocks {
  std::mutex mutex;
  std::set<OwnLock*> all;

  static OwnLocks& instance() {
    static OwnLocks& only = *make();  // never destroyed: a save may outlive main
    return only;
  }

 private:
  static OwnLocks* make() {
    ::pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                     leave_to_parent);
    return new OwnLocks;
  }

  static void leave_to_parent() {
    for (OwnLock* lock : instance().all) {
      ::close(lock->file_);
      lock->file_ = -1;
    }
    instance().all.clear();
    instance().mutex.unlock();
  }
};

OwnLock::~OwnLock() {
  OwnLocks& locks = OwnLocks::instance();
  const std::lock_guard<std::mutex> hold(locks.mutex);
  if (locks.all.erase(this) > 0) {
    ::close(file_);
  }
}

void OwnLock::take(const std::string& directory) {
  OwnLocks& locks = OwnLocks::instance();
  const std::lock_guard<std::mutex> hold(locks.mutex);
  owner_ = ::getpid();
  file_ = ::open(directory.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (file_ < 0) {
    return;
  }
  static_cast<void>(::flock(file_, LOCK_EX | LOCK_NB));  // not all file systems have it
  locks.all.insert(this);
}

bool OwnLock::is_of_parent() const { return owner_ != 0 && owner_ != ::getpid(); }

}  // namespace fsdp2::ckpt
