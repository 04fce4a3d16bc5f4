// What a rank says while it waits for a collective, and how it finds those who keep it waiting.
#pragma once

#include <string>
#include <vector>

#include "core/comm/failure/failure_notice.h"

namespace fsdp2 {

// While a rank waits for long enough that somebody may ask, it says what for.
class WaitingFor {
 public:
  // rank: of this process or thread, in the world. what: "all_gather of group fsdp/gather".
  WaitingFor(FailureNotice& notice, int rank, std::string what)
      : notice_(notice), rank_(rank), what_(std::move(what)) {}
  ~WaitingFor();
  WaitingFor(const WaitingFor&) = delete;
  WaitingFor& operator=(const WaitingFor&) = delete;

  const std::string& what() const { return what_; }
  void tell() const;

 private:
  FailureNotice& notice_;
  const int rank_;
  const std::string what_;
  mutable bool told_ = false;
};

// The ranks of a group that are the cause, as far as they can be found: "; rank 2 does not answer".
// own: this one. overdue: also those that are well, but wait for something else than `what`.
std::string describe_absent(FailureNotice& notice, const std::vector<int>& members, int own,
                            const std::string& what, bool overdue);

}  // namespace fsdp2
