#include "core/ckpt/ranks/rank_failures.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/ckpt/ranks/note_bytes.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kFailuresInMessage = 8;

std::string describe(const RankFailure& failure) {
  return failure.is_told ? fmt::format("rank {}: {}", failure.rank, failure.error.message())
                         : failure.error.message();
}

}  // namespace

std::string encode_failures(const std::vector<RankFailure>& failures) {
  NoteWriter out;
  out.count(failures.size());
  for (const RankFailure& failure : failures) {
    out.number(failure.rank);
    out.error(failure.error);
    out.number(failure.is_told ? 1 : 0);
  }
  return out.take();
}

std::vector<RankFailure> decode_failures(const std::string& text) {
  NoteReader in(text);
  std::vector<RankFailure> failures;
  for (size_t count = in.count(); count > 0; --count) {
    const auto rank = static_cast<int>(in.number());
    Error error = in.error();
    failures.push_back({rank, std::move(error), in.number() != 0});
  }
  return failures;
}

void throw_failures(const std::vector<RankFailure>& failures, int rank) {
  if (failures.empty()) {
    return;
  }
  const auto own = std::find_if(
      failures.begin(), failures.end(),
      [rank](const RankFailure& failure) { return failure.rank == rank && failure.is_told; });
  const bool is_own = own != failures.end();
  const Error& first = is_own ? own->error : failures.front().error;
  std::string text = is_own ? first.message() : describe(failures.front());
  size_t described = 1;
  for (const RankFailure& failure : failures) {
    if (&failure.error != &first && described < kFailuresInMessage) {
      text += "; " + describe(failure);
      ++described;
    }
  }
  if (failures.size() > described) {
    text += fmt::format("; and {} more ranks", failures.size() - described);
  }
  const bool is_first_hand = is_own || !failures.front().is_told;
  throw Error(is_first_hand ? first.code() : Code::kPeerFailed, text,
              is_first_hand ? first.native_code() : 0);
}

}  // namespace fsdp2::ckpt
