// The mode of autograd and autocast that a program's nodes ask for, on this thread; at the end of
// the scope the caller's is back.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "core/exported/program/program.h"

namespace fsdp2::exported {

class ModeScope {
 public:
  // Autocast is that of the device's type, whichever the exporting machine had.
  explicit ModeScope(c10::DeviceType device);
  ~ModeScope() { enter(Mode()); }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

  // What the mode leaves open is the caller's.
  void enter(const Mode& mode);

 private:
  const c10::DeviceType device_;
  const bool grad_;
  const bool autocast_;
  const at::ScalarType autocast_dtype_;
  Mode now_;
};

}  // namespace fsdp2::exported
