#include "core/comm/check/collective_wait.h"

#include <fmt/format.h>

namespace fsdp2 {

WaitingFor::~WaitingFor() {
  if (told_) {
    notice_.roll_call().set_waiting_for(rank_, "");
  }
}

void WaitingFor::tell() const {
  if (!told_) {
    told_ = true;
    notice_.roll_call().set_waiting_for(rank_, what_);
  }
}

std::string describe_absent(FailureNotice& notice, const std::vector<int>& members, int own,
                            const std::string& what, bool overdue) {
  std::string text;
  for (const RollCall::Answer& answer : notice.roll_call().call(members)) {
    if (!answer.answered) {
      text += fmt::format(
          "; rank {} does not answer: it has ended, is stopped, or cannot be reached", answer.rank);
    } else if (overdue && answer.rank != own && answer.waiting_for != what) {
      text += answer.waiting_for.empty()
                  ? fmt::format("; rank {} is in no collective", answer.rank)
                  : fmt::format("; rank {} is in {}", answer.rank, answer.waiting_for);
    }
  }
  return text;
}

}  // namespace fsdp2
