// The rows of a batch, cut into the batches of one forward each. The last may have fewer rows.
#pragma once

#include <cstdint>

#include "core/models/language_model.h"
#include "core/nn/module.h"

namespace fsdp2::train {

class RowBatches {
 public:
  // inputs: of the model, which has found them sound (see LanguageModel) and outlives this; the
  // tokens [rows, S] first. batch_size: rows of a forward; 0: all. Error: kInvalidArgument if it is
  // negative.
  RowBatches(const models::LanguageModel& model, nn::Values inputs, int64_t batch_size);

  int64_t rows() const { return rows_; }
  int64_t size() const { return rows_ == 0 ? 0 : (rows_ + batch_size_ - 1) / batch_size_; }
  nn::Values at(int64_t index) const;

 private:
  const models::LanguageModel& model_;
  nn::Values inputs_;
  int64_t rows_;
  int64_t batch_size_;  // at least 1
};

}  // namespace fsdp2::train
