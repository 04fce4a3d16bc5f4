// What this CPU's vectors are to LibTorch's two engines of products.
#pragma once

namespace fsdp2::nn {

// MKL has vectors of 512 bits for Intel's CPUs alone, oneDNN for any that has AVX-512.
inline bool onednn_has_wider_vectors() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

// Both have vectors of 256 bits.
inline bool engines_have_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("avx512f") == 0;
#else
  return false;
#endif
}

}  // namespace fsdp2::nn
