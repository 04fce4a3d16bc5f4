// Keeps LibTorch's clients from asking a name server who they have connected to.
//
// A client looks up the name of the address, for its messages alone, and by IPv6, by which
// /etc/hosts does not know 127.0.0.1. One lost answer would hold all ranks up for five seconds.
// Files are still asked. Whoever needs an address looks it up before.
#pragma once

#include <resolv.h>

namespace fsdp2 {

// While it lives, on its thread.
class NoNameServer {
 public:
  NoNameServer() : servers_(is_ready() ? _res.nscount : 0) { _res.nscount = 0; }
  ~NoNameServer() { _res.nscount = servers_; }
  NoNameServer(const NoNameServer&) = delete;
  NoNameServer& operator=(const NoNameServer&) = delete;

 private:
  // Whether the thread's settings are read, as they would be before its first question.
  static bool is_ready() { return (_res.options & RES_INIT) != 0 || res_init() == 0; }

  const int servers_;
};

}  // namespace fsdp2
