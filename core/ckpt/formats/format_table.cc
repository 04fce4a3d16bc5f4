#include "core/ckpt/formats/format_table.h"

#include <utility>

#include "core/base/error.h"
#include "core/ckpt/dcp/dcp_listing.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/dcp/dcp_tree.h"
#include "core/ckpt/dcp/detect.h"
#include "core/ckpt/formats/model_and_optimizer.h"
#include "core/ckpt/hugging_face/hugging_face_source.h"
#include "core/ckpt/hugging_face/model_directory_writer.h"
#include "core/ckpt/safetensors/detect.h"
#include "core/ckpt/safetensors/full_safetensors_writer.h"
#include "core/ckpt/safetensors/safetensors_listing.h"
#include "core/ckpt/safetensors/safetensors_source.h"
#include "core/ckpt/torch/detect.h"
#include "core/ckpt/torch/pth_listing.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/ckpt/torch/pth_tree.h"

namespace fsdp2::ckpt {

namespace {

template <typename Source, auto... kKind>
std::unique_ptr<StateSource> open_as(const std::string& path) {
  return std::make_unique<Source>(path, kKind...);
}

[[noreturn]] std::unique_ptr<StateSource> refuse_parts(const std::string& path) {
  fail(Code::kUnsupported,
       "{}: is {}, whose parts are described rank by rank; save it with collectives, or convert it "
       "with torch.distributed.checkpoint first",
       path, format_name(CheckpointFormat::kDcpPartDirectory));
}

// Options are those of model directories alone.
template <std::unique_ptr<FullWriter> (*kMake)(const std::string&, std::vector<TensorSpec>)>
std::unique_ptr<FullWriter> make_file(const std::string& path, std::vector<TensorSpec> plan,
                                      const FullWriterOptions& /*options*/) {
  return kMake(path, std::move(plan));
}

std::vector<TensorSpec> as_given(std::vector<TensorSpec> plan,
                                 const FullWriterOptions& /*options*/) {
  return plan;
}

std::vector<TensorSpec> by_item_size(std::vector<TensorSpec> plan,
                                     const FullWriterOptions& /*options*/) {
  return sorted_by_item_size(std::move(plan));
}

std::vector<TensorSpec> file_by_file(std::vector<TensorSpec> plan,
                                     const FullWriterOptions& options) {
  return tensors_of(plan_model_files(std::move(plan), options));
}

}  // namespace

const std::vector<FormatRow>& format_table() {
  using Format = CheckpointFormat;
  // clang-format off
  static const std::vector<FormatRow> table = {
    // format, name
    //   is_at, open, list
    //   make_writer, order, copy_tree, may_replace
    {Format::kDcpDirectory, kDcpDirectoryFormat,
       is_dcp_directory, open_as<DcpSource>, list_dcp,
       nullptr, nullptr, copy_to_dcp, replaceable_by_dcp},
    {Format::kDcpPartDirectory, "a DCP directory with metadata of each rank",
       is_dcp_part_directory, refuse_parts, list_dcp_parts,
       nullptr, nullptr, nullptr, nullptr},
    {Format::kShardedSafetensors, kShardedSafetensorsFormat,
       is_sharded_directory, open_as<SafetensorsSource, SafetensorsFiles::kOnePerRank>, list_shards,
       nullptr, nullptr, nullptr, replaceable_by_shards},
    {Format::kModelAndOptimizer, "a model and its optimizer side by side",
       is_model_and_optimizer, open_model_and_optimizer, list_model_and_optimizer,
       nullptr, nullptr, nullptr, nullptr},
    {Format::kHuggingFaceDirectory, kModelDirectoryFormat,
       is_model_directory, open_model_directory, list_model_directory,
       make_model_directory_writer, file_by_file, nullptr, replaceable_by_model},
    {Format::kPthPerRankDirectory, "a directory of torch.save files of each rank",
       is_per_rank_directory, open_as<PthSource, PthFiles::kOnePerRank>, list_per_rank_pth,
       nullptr, nullptr, copy_to_per_rank_pth, nullptr},
    {Format::kPth, "a torch.save file",
       is_torch_file, open_as<PthSource, PthFiles::kOne>, list_pth,
       make_file<make_pth_writer>, as_given, copy_to_pth, nullptr},
    {Format::kSafetensors, "a safetensors file",
       is_safetensors_file, open_as<SafetensorsSource, SafetensorsFiles::kOne>, list_safetensors,
       make_file<make_safetensors_writer>, by_item_size, nullptr, nullptr},
  };
  // clang-format on
  return table;
}

const FormatRow& row_of(CheckpointFormat format) {
  for (const FormatRow& row : format_table()) {
    if (row.format == format) {
      return row;
    }
  }
  fail(Code::kInternal, "no format {}", static_cast<int>(format));
}

}  // namespace fsdp2::ckpt
