// A port for the ranks of one node to meet on.
#pragma once

namespace fsdp2::cli {

// Holds a free TCP port without listening on it. Rank 0 can listen there because both set
// SO_REUSEADDR; the system gives the port to nobody who asks for just any.
class ReservedPort {
 public:
  ReservedPort();  // throws std::system_error
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;

  int number() const { return number_; }

 private:
  int socket_ = -1;
  int number_ = 0;
};

}  // namespace fsdp2::cli
