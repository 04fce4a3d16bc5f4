// A tree's events in a line: "U(root) U(layers.0) P(layers.0)", with U for an all-gather, R for a
// reshard, P for the end of a group's backward and S for a reduce-scatter.
#pragma once

#include <string>
#include <vector>

#include "core/fsdp/event_log.h"

namespace fsdp2::checklist {

inline char letter_of(fsdp::EventKind kind) {
  switch (kind) {
    case fsdp::EventKind::kAllGather:
      return 'U';
    case fsdp::EventKind::kReshard:
      return 'R';
    case fsdp::EventKind::kPostBackward:
      return 'P';
    case fsdp::EventKind::kReduceScatter:
      return 'S';
    case fsdp::EventKind::kUnshard:
      break;
  }
  return ' ';
}

// letters: the kinds that count.
inline std::string text_of(const std::vector<fsdp::Event>& events, const std::string& letters) {
  std::string text;
  for (const fsdp::Event& event : events) {
    const char letter = letter_of(event.kind);
    if (letters.find(letter) != std::string::npos) {
      text += (text.empty() ? "" : " ") + std::string(1, letter) + "(" +
              (event.group.empty() ? "root" : event.group) + ")";
    }
  }
  return text;
}

}  // namespace fsdp2::checklist
