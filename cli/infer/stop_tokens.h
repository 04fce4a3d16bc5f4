// The tokens that end a text where --stop-tokens does not say: those that the files of the model
// and its tokenizer name.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/library.h"
#include "core/config/plan.h"

namespace fsdp2::cli {

// "eos_token_id", a number or a list, of generation_config.json in the directory of --model, or of
// config.json where there is no such file, or else that of the model's class, as in transformers.
// Throws Failure for a file that is not what it is to be.
std::vector<int64_t> stop_tokens_of_model(const config::TrainOptions& run);

// The end of a text, and what ends the assistant's turn of a chat: the first special token that the
// chat template, or ChatML without one, puts behind an answer.
std::vector<int64_t> stop_tokens_of_answers(const Tokenizer& tokenizer);

}  // namespace fsdp2::cli
