// What only language models have. A module handle may hold any module: whoever needs a vocabulary
// asks for this capability.
#pragma once

#include <cstdint>
#include <vector>

#include "core/nn/layers/head_scores.h"
#include "core/nn/module.h"

namespace fsdp2::models {

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_positions() const = 0;
  // Whether no token sees those behind it. The loss of a model that is not causal is about tokens
  // that it hides (encoder.h), and score() is about those only: the others get 0.
  virtual bool is_causal() const { return true; }

  // forward's inputs and output, B = batch, S = sequence, V = vocabulary (labels may also be None;
  // they are not shifted here: labels[b][s] is the token that should follow tokens[b][s]):
  //   (tokens [B,S] int64)                       -> logits [B,S,V], in the dtype of the head
  //   (tokens [B,S] int64, labels [B,S] int64)   -> mean cross-entropy, fp32 scalar; label -100 is
  //                                                 left out. All logits are never held at once.
  //                                                 Where config.json has output_router_logits, the
  //                                                 loss of the routers is added. A model that is
  //                                                 not causal (encoder.h) has a loss of its own.
  // Two more inputs may follow (labels, positions and mask may each be None):
  //   positions, integers [B,S], or [3,B,S] where the model has sections for three axes: those of
  //   the rotary embedding, instead of 0 to S - 1; rows of the table where a model has learned
  //   positions.
  //   mask, what attention sees besides what comes later: integers [n + 1] on the CPU, the
  //   boundaries of sequences packed into the rows (packed_sequences.h); [B,S], 0 for padding; or
  //   [B, H or 1, S, S], all that is seen. Without a mask, positions [B,S] that do not go on by one
  //   begin a sequence. Sequences without positions count from 0 each.
  // and where the model sees images and videos, up to five more, each of which may be None. P
  // patches; what says how many there are is on the host:
  //   pixel_values, floating-point [P, pixels of a patch], and image_grid_thw, integers [images,3],
  //   the frames, rows and columns of the patches of each image, as transformers' processors make
  //   them; pixel_values_videos and video_grid_thw, the same of videos; second_per_grid_ts,
  //   numbers [videos], the seconds between two frames of each, where positions tell the time.
  //   What the model makes of them stands in for the tokens image_token_id and video_token_id of
  //   config.json, in the order in which they come. Without positions, those of the tokens are what
  //   transformers' get_rope_index makes.
  // Errors: kInvalidArgument for a token or label outside the vocabulary (position and value),
  // inputs that do not fit each other, or a sequence without positions longer than max_positions.
  // Tokens and labels that are on a device are not looked at, since the host would wait for it:
  // what copies them there looks first.

  // As forward with labels, but what the model says of each label by itself, [B,S], with what has a
  // label of -100 left out. Fp32, whatever the output dtype of a unit is.
  virtual nn::TokenScores score(nn::Values inputs, const nn::HeadScoreOptions& options) = 0;
  // As forward without labels, but the logits [B,V] of one place in each row, fp32 likewise. places
  // [B] int64, 0 to S - 1, where the tokens are. The head computes no others. Error: kUnsupported
  // for a model that is not causal.
  virtual at::Tensor logits_at(nn::Values inputs, const at::Tensor& places) = 0;
  // The tokens that images and videos stand in for.
  virtual std::vector<int64_t> vision_tokens() const { return {}; }
  // The images and videos, as forward takes them behind the mask, of these rows of a batch. Waits
  // for the device of the tokens. REQUIRES: inputs that check_inputs has found sound.
  virtual nn::Values images_of_rows(const nn::Values& /*inputs*/, int64_t /*first*/,
                                    int64_t /*count*/) const {
    return {};
  }
};

// The module as a LanguageModel, or null.
const LanguageModel* find_language_model(const nn::Module& module);
// Error: kUnsupported if it is none; purpose says what for, as "generation".
const LanguageModel& language_model(const nn::Module& module, const char* purpose);
LanguageModel& language_model(nn::Module& module, const char* purpose);

}  // namespace fsdp2::models
