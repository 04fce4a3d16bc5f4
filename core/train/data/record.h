// One line of a JSON-lines data set, and the text that a model is to learn from it.
//
//   {"text": T}                       T, all of it answer
//   {"prompt": P, "response": R}      P, then R as the answer
//   {"messages": [{"role": "system" | "user" | "assistant", "content": C}, ...]}
//                                     ChatML: "<|im_start|>ROLE\nC<|im_end|>\n" for each message,
//                                     with "C<|im_end|>" of the assistant's as answers
//
// The first two end with a zero byte, which is part of the answer, so that a model learns where to
// end; ChatML has <|im_end|> for that. A record may have other keys, which mean nothing; a message
// may not, because those that are usual (tool_calls) change what is said.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdp2::train {

struct RecordPart {
  std::string text;
  bool is_answer;  // to be learned
};

using Record = std::vector<RecordPart>;

// Error: kCorruptData, whose message says what is wrong and not where.
Record read_record(std::string_view line);

}  // namespace fsdp2::train
