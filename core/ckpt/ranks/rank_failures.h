// Why a piece of work that all ranks share has failed, reported alike by all of them: every rank
// that failed is named.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace fsdp2::ckpt {

struct RankFailure {
  int rank;  // in the job
  Error error;
  // Told by the rank itself; else another one has not heard of it in time, and the error says so.
  bool is_told = true;
};

// For the other ranks. An empty list is success.
std::string encode_failures(const std::vector<RankFailure>& failures);
std::vector<RankFailure> decode_failures(const std::string& text);

// Throws what `rank` reports, if anything has failed: a rank that failed its own error, the others
// kPeerFailed, or the first error as it is if its rank has told nothing. Each names the other ranks
// that failed, with their texts.
void throw_failures(const std::vector<RankFailure>& failures, int rank);

}  // namespace fsdp2::ckpt
