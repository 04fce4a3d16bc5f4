#include "core/ckpt/ranks/rank_failures.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace fsdp2::ckpt {

namespace {

using Json = nlohmann::json;

constexpr size_t kFailuresInMessage = 8;

std::string describe(const RankFailure& failure) {
  return failure.is_told ? fmt::format("rank {}: {}", failure.rank, failure.error.message())
                         : failure.error.message();
}

}  // namespace

std::string encode_failures(const std::vector<RankFailure>& failures) {
  Json list = Json::array();
  for (const RankFailure& failure : failures) {
    const Error& error = failure.error;
    list.push_back({failure.rank, static_cast<int32_t>(error.code()), error.message(),
                    error.native_code(), failure.is_told});
  }
  const std::vector<uint8_t> bytes = Json::to_cbor(list);
  return {bytes.begin(), bytes.end()};
}

std::vector<RankFailure> decode_failures(const std::string& text) {
  std::vector<RankFailure> failures;
  for (const Json& item : Json::from_cbor(text)) {
    failures.push_back({item.at(0).get<int>(),
                        Error(static_cast<Code>(item.at(1).get<int32_t>()),
                              item.at(2).get<std::string>(), item.at(3).get<int32_t>()),
                        item.at(4).get<bool>()});
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
