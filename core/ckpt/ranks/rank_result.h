// What a rank tells rank 0 when it has done its part of a save.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/dcp/description.h"

namespace fsdp2::ckpt {

struct RankResult {
  std::optional<Error> error;
  std::vector<DcpPart> parts;  // what it has written, without an error
};

std::string encode_result(const RankResult& result);
RankResult decode_result(std::string_view bytes);

}  // namespace fsdp2::ckpt
