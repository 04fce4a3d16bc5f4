// Bodies that run in a process of their own, forked: for what a process does to itself.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

namespace fsdp2::ckpt {

// The child's exit code is 0 if `body` returns true. This process must not have used LibTorch: what
// it forks then may.
template <typename Body>
pid_t in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      code = body() ? 0 : 1;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  return child;
}

// Waits for a child.
inline bool succeeded(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace fsdp2::ckpt
