// Makes the outcome of local work the same on every rank of a team, before the ranks communicate
// anything that depends on it.
//
//   agree(team, "shard options", [&] { validate(); return fingerprint; });
//
// Every rank runs `local`, which returns a text that must be equal everywhere ("key=value" lines),
// or throws. If ranks threw, each rethrows its own error, and all others get kPeerFailed with their
// numbers and texts. If the texts differ, all ranks get the same kInvalidArgument, which names
// the first differing line with the values of two ranks. The team stays usable.
//
// What follows kNoteMark in a line is not compared: a note, such as where the value comes from,
// which is told beside it.
#pragma once

#include <functional>
#include <string>

#include "core/comm/team.h"

namespace fsdp2 {

inline constexpr char kNoteMark = '\x1f';  // ASCII's unit separator, which no text for people has

// Collective. One small all-gather when all is well.
void agree(Team& team, const std::string& what, const std::function<std::string()>& local);

}  // namespace fsdp2
