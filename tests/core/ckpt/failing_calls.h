// System calls that fail for this thread and those that it starts, and permissions that hold for
// root too. Neither needs privileges nor can be undone: for children.
#pragma once

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace fsdp2::ckpt {

// For children, which have no test to fail.
inline bool holds(bool condition, const std::string& what) {
  if (!condition) {
    std::fprintf(stderr, "not so: %s\n", what.c_str());
  }
  return condition;
}

inline bool give_up_overriding_permissions() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  if (::syscall(SYS_capget, &header, sets) != 0) {
    return holds(false, "capabilities can be read");
  }
  for (const int capability : {CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_FOWNER}) {
    sets[0].effective &= ~(1U << capability);
    sets[0].permitted &= ~(1U << capability);
  }
  return holds(::syscall(SYS_capset, &header, sets) == 0, "capabilities can be given up");
}

// From now on these calls end with `error`; with `not_standard_streams`, only where their first
// argument is not one of 0 to 2.
inline bool make_calls_fail(const std::vector<int>& numbers, int error,
                            bool not_standard_streams = false) {
  const auto load = [](size_t offset) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<uint32_t>(offset)};
  };
  std::vector<sock_filter> program;
  for (const int number : numbers) {
    program.push_back(load(offsetof(seccomp_data, nr)));
    program.push_back({BPF_JMP | BPF_JEQ | BPF_K, 0,
                       static_cast<uint8_t>(not_standard_streams ? 3 : 1),
                       static_cast<uint32_t>(number)});
    if (not_standard_streams) {
      program.push_back(load(offsetof(seccomp_data, args)));
      program.push_back({BPF_JMP | BPF_JGT | BPF_K, 0, 1, STDERR_FILENO});
    }
    program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)});
  }
  program.push_back({BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW});
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return holds(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
               "system calls can be filtered");
}

// As on NFS and Lustre: two names cannot be exchanged at once.
inline bool make_exchange_unknown() { return make_calls_fail({SYS_renameat2}, EINVAL); }

}  // namespace fsdp2::ckpt
