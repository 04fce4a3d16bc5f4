#include "core/ckpt/formats/make_full_writer.h"

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/formats/format_table.h"

namespace fsdp2::ckpt {

namespace {

const FormatRow& row_of_whole_tensors(const std::string& path, CheckpointFormat format) {
  const FormatRow& row = row_of(format);
  FSDP2_CHECK(row.make_writer != nullptr, Code::kUnsupported, "{}: {} does not hold whole tensors",
              path, row.name);
  return row;
}

}  // namespace

std::unique_ptr<FullWriter> make_full_writer(const std::string& path, CheckpointFormat format,
                                             std::vector<TensorSpec> plan,
                                             const FullWriterOptions& options) {
  return row_of_whole_tensors(path, format).make_writer(path, std::move(plan), options);
}

std::vector<TensorSpec> order_of_writing(std::vector<TensorSpec> plan, CheckpointFormat format,
                                         const FullWriterOptions& options) {
  return row_of_whole_tensors("the order of writing", format).order(std::move(plan), options);
}

}  // namespace fsdp2::ckpt
