// Positions and masks as callers of a language model give them (see LanguageModel), made into what
// its layers take.
//
// Shapes: B batch, S sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

#include "core/nn/module.h"

namespace fsdp2::models {

// Undefined where the input is None or left out.
at::Tensor tensor_at(const nn::Values& inputs, size_t position);
// None where the tensor is undefined.
c10::IValue value_of(const at::Tensor& tensor);

// How a batch of tokens falls into sequences, for the layers. Undefined positions: 0 to S - 1. An
// undefined mask: each row is one sequence.
struct Sequences {
  at::Tensor positions;
  at::Tensor mask;
  at::Tensor mask_in_window;  // the mask for layers with a sliding window
};

// tokens [B,S]; positions and mask as given, undefined where they are left out. Error:
// kInvalidArgument if they do not fit the tokens. window: of the layers that have one; 0: none do.
Sequences sequences_of(const at::Tensor& tokens, at::Tensor positions, at::Tensor mask,
                       int64_t window = 0);

// What sequences_of() asks of positions, where defined, and of a mask of padding [B,S].
void check_positions(const at::Tensor& tokens, const at::Tensor& positions);
void check_padding(const at::Tensor& tokens, const at::Tensor& mask);

// The most tokens that count their positions from 0; none where the caller gives positions.
int64_t longest_sequence(const at::Tensor& tokens, const at::Tensor& positions,
                         const at::Tensor& mask);

}  // namespace fsdp2::models
