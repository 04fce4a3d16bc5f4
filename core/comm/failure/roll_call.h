// Asks ranks where they are, once a collective has failed or is overdue, so that the error can name
// the rank that is the cause. A transport can at best tell that a connection is gone.
//
// A rank that lives says what it is waiting for, at any time, whatever its own threads do.
#pragma once

#include <string>
#include <vector>

namespace fsdp2 {

class RollCall {
 public:
  struct Answer {
    int rank;                 // in the world
    bool answered;            // in time; false: it has ended, is stopped, or is out of reach
    std::string waiting_for;  // "all_gather of group fsdp/gather"; empty: nothing
  };

  virtual ~RollCall() = default;

  // Sets what this rank is waiting for; empty: nothing.
  virtual void set_waiting_for(int rank, const std::string& what) noexcept = 0;
  // Takes about a second if a rank does not answer. Empty if nobody can be asked.
  virtual std::vector<Answer> call(const std::vector<int>& ranks) noexcept = 0;
};

}  // namespace fsdp2
