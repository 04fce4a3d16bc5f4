// What the fp32 products of linear layers on CPUs may round: PyTorch's float32_matmul_precision, by
// its own words. The reduced precisions are products of bf16 parts (bf16_parts.h), for CPUs whose
// bf16 units are so much faster that several products are cheaper than one of fp32: those with AMX.
// On others nothing is gained by them, and products stay strict fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fsdp2::nn {

enum class MatmulPrecision {
  kHighest,       // strict fp32
  kHigh,          // two bf16 parts of each operand, where that is measured to be faster
  kMedium,        // operands rounded to bf16, where that is measured to be faster
  kHighAlways,    // as kHigh, however slow: the numbers of a machine where it is faster
  kMediumAlways,  // as kMedium, likewise
};

std::string to_string(MatmulPrecision precision);

// For the whole process; kHighest until it is set.
void set_matmul_precision(MatmulPrecision precision);
MatmulPrecision matmul_precision();

// Whether bf16 parts are faster in this process, where that decides about the precision; nothing
// where it does not. The first call measures, some tens of ms, and logs what came of it.
std::optional<bool> parts_are_faster();
// Ranks must round alike, and a measurement may be disturbed: what they have made of
// parts_are_faster() together, which from then on decides, until the precision is set anew.
void settle_parts(bool are_faster);

// How many bf16 parts stand for an operand of a large product; 0: products are strict fp32. By
// parts_are_faster() where nothing is settled.
int product_parts();

// Whether a product of such sizes, a [m,k] b [k,n], gains by bf16 parts if large ones do: to split
// a and b takes time that m or n alone of a thin product cannot make up for.
bool is_for_parts(int64_t m, int64_t n, int64_t k);

// One line: the precision, and the speeds where they were measured.
std::string describe_matmul_precision();

}  // namespace fsdp2::nn
