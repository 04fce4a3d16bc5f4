// What a module has that draws random numbers from a generator of its own, rather than from
// LibTorch's default one, which all threads of the process share.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

#include "core/nn/module.h"

namespace fsdp2::nn {

class OwnGenerator {
 public:
  virtual ~OwnGenerator() = default;

  // On the CPU; none where forward draws nothing. Ranks whose generators have the same state draw
  // the same numbers.
  virtual std::optional<at::Generator> own_generator() const = 0;

  // What the numbers depend on beside the generator: the rows of the batch that a forward is about,
  // as hash_rows has them. Undefined outside a forward, and where forward keeps none.
  virtual at::Tensor rows() const { return {}; }
  virtual void set_rows(const at::Tensor& /*rows*/) {}
};

// The rows for as long as this lives. owner: may be null.
class ForwardOfRows {
 public:
  ForwardOfRows(OwnGenerator* owner, const at::Tensor& rows)
      : owner_(owner), before_(owner == nullptr ? at::Tensor() : owner->rows()) {
    set(rows);
  }
  ~ForwardOfRows() { set(before_); }
  ForwardOfRows(const ForwardOfRows&) = delete;
  ForwardOfRows& operator=(const ForwardOfRows&) = delete;

 private:
  void set(const at::Tensor& rows) {
    if (owner_ != nullptr) {
      owner_->set_rows(rows);
    }
  }

  OwnGenerator* const owner_;
  const at::Tensor before_;
};

// None for a module that is no OwnGenerator.
std::optional<at::Generator> own_generator_of(const Module& module);

}  // namespace fsdp2::nn
