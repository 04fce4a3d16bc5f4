// A run's claim to a series of checkpoints, so that two runs at once do not mix theirs.
//
//   out/.fsdp2-series
//
// is locked (flock) by the process that saves out/step-00000100 and so on, and says which process
// that is. It is removed when the claim is given back.
//
// The lock goes with its process, however that ends: a file that a dead run has left stops nobody.
// Between machines it holds where the file system passes locks on, as NFS does (version 4, or 3
// with its lock service): there a machine that has lost the network may lose its lock, after the
// server's grace period. Where a file system has no locks nothing is claimed, and only one run at a
// time may save a series.
#pragma once

#include <string>

namespace fsdp2::ckpt {

inline constexpr char kSeriesClaimFile[] = ".fsdp2-series";

// Claims are the process's: all of its objects may have the same one. Any thread, one object one
// thread at a time.
class SeriesClaim {
 public:
  SeriesClaim() = default;
  ~SeriesClaim();
  SeriesClaim(const SeriesClaim&) = delete;
  SeriesClaim& operator=(const SeriesClaim&) = delete;

  // Claims the series that the checkpoint at `path` is of, makes its directory if it is missing,
  // and gives back the claim to another. Gives back alone where `path` is of no series (its name is
  // not step-<number>). kIo if another process has it.
  void take(const std::string& path);

 private:
  void give_back() noexcept;

  std::string directory_;  // "": has none
};

// kIo if another process has the series that `path` is of, or would be.
void check_series_is_free(const std::string& path);

}  // namespace fsdp2::ckpt
