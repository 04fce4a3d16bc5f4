// Whether a path still leads to the checkpoint that it led to when reading began: a save replaces a
// checkpoint in one step, under the feet of whoever reads the old one.
//
//   const SteadyPath steady(path);
//   steady.explain([&] { open_checkpoint(path)->verify(); });  // its errors say so
//   steady.check();                                            // or else this does
#pragma once

#include <string>

#include "core/base/error.h"

namespace fsdp2::ckpt {

// Any thread.
class SteadyPath {
 public:
  explicit SteadyPath(std::string path);
  ~SteadyPath();
  SteadyPath(const SteadyPath&) = delete;
  SteadyPath& operator=(const SteadyPath&) = delete;

  // kIo if the path leads elsewhere by now, or nowhere.
  void check() const;

  // What `body` returns. An error of it is check's if there is one: what looked like damage was
  // half of an old checkpoint and half of a new one.
  template <typename Body>
  auto explain(const Body& body) const {
    try {
      return body();
    } catch (const Error&) {
      check();
      throw;
    }
  }

 private:
  std::string path_;
  int file_ = -1;  // held open, or its number could be another's by then. -1: there was nothing
};

}  // namespace fsdp2::ckpt
