#include "core/base/error.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/dcp/metadata_checks.h"
#include "core/ckpt/dcp/metadata_names.h"
#include "core/ckpt/pickle/dtype.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

// The object of a class, up to where its state is put.
void begin_object(PickleEmitter& out, const char* name) {
  out.global(name);
  out.empty_tuple();
  out.make_object();
}

void begin_dict(PickleEmitter& out) {
  out.empty_dict();
  out.mark();
}

// dtype, layout, requires_grad, memory format (0: contiguous), pin_memory
void put_properties(PickleEmitter& out, const char* dtype) {
  begin_object(out, kTensorProperties);
  out.mark();
  out.global(fmt::format("torch.{}", dtype));
  out.global(kGetLayout);
  out.text(kStridedLayout);
  out.tuple_of(1);
  out.call();
  out.boolean(false);
  out.global(kMemoryFormat);
  out.integer(0);
  out.tuple_of(1);
  out.call();
  out.boolean(false);
  out.tuple();
  out.build();
}

void put_chunk(PickleEmitter& out, const Box& chunk) {
  begin_object(out, kChunkStorageMetadata);
  begin_dict(out);
  out.text(kOffsets);
  out.torch_size(chunk.offsets);
  out.text(kSizes);
  out.torch_size(chunk.sizes);
  out.set_all();
  out.build();
}

void put_entry(PickleEmitter& out, const DcpEntry& entry) {
  out.text(entry.name);
  if (!entry.tensor) {
    begin_object(out, kBytesStorageMetadata);
    return;
  }
  const char* dtype = torch_dtype_name(entry.tensor->dtype);
  FSDP2_CHECK(dtype != nullptr, Code::kInvalidArgument, "{} has the dtype {}, which torch lacks",
              printable_name(entry.name), c10::toString(entry.tensor->dtype));
  begin_object(out, kTensorStorageMetadata);
  begin_dict(out);
  out.text(kProperties);
  put_properties(out, dtype);
  out.text(kSize);
  out.torch_size(entry.tensor->shape);
  out.text(kChunks);
  out.empty_list();
  out.mark();
  for (const Box& chunk : entry.tensor->chunks) {
    put_chunk(out, chunk);
  }
  out.append_all();
  out.set_all();
  out.build();
}

void put_path(PickleEmitter& out, const DcpEntry& entry) {
  out.text(entry.name);
  out.mark();
  for (const PathPart& part : entry.path) {
    if (const auto* text = std::get_if<std::string>(&part)) {
      out.text(*text);
    } else {
      out.integer(std::get<int64_t>(part));
    }
  }
  if (entry.path.empty()) {
    out.text(entry.name);
  }
  out.tuple();
}

void put_index(PickleEmitter& out, const DcpEntry& entry, size_t item) {
  begin_object(out, kMetadataIndex);
  begin_dict(out);
  out.text(kFqn);
  out.text(entry.name);
  out.text(kIndex);
  if (entry.tensor) {
    out.integer(static_cast<int64_t>(item));
    out.text(kOffset);
    out.torch_size(entry.tensor->chunks[item].offsets);
  } else {
    out.none();
  }
  out.set_all();
  out.build();
}

void put_storage(PickleEmitter& out, const DcpStorage& storage) {
  begin_object(out, kStorageInfo);
  begin_dict(out);
  out.text(kRelativePath);
  out.text(storage.relative_path);
  out.text(kOffset);
  out.integer(storage.offset);
  out.text(kLength);
  out.integer(storage.length);
  if (!storage.transforms.empty()) {
    out.text(kTransforms);
    out.empty_list();
    out.mark();
    for (const std::string& transform : storage.transforms) {
      out.text(transform);
    }
    out.append_all();
  }
  out.set_all();
  out.build();
}

}  // namespace

std::string encode_dcp_metadata(const DcpMetadata& metadata) {
  for (const DcpEntry& entry : metadata.entries()) {
    const std::string fault = find_fault(entry);
    FSDP2_CHECK(fault.empty(), Code::kInvalidArgument, "{} {}", printable_name(entry.name), fault);
  }
  PickleEmitter out;
  begin_object(out, kMetadata);
  begin_dict(out);
  out.text(kStateDictMetadata);
  begin_dict(out);
  for (const DcpEntry& entry : metadata.entries()) {
    put_entry(out, entry);
  }
  out.set_all();
  out.text(kPlannerData);
  begin_dict(out);
  for (const DcpEntry& entry : metadata.entries()) {
    put_path(out, entry);
  }
  out.set_all();
  out.text(kStorageData);
  begin_dict(out);
  for (const DcpEntry& entry : metadata.entries()) {
    for (size_t item = 0; item < entry.storage.size(); ++item) {
      put_index(out, entry, item);
      put_storage(out, entry.storage[item]);
    }
  }
  out.set_all();
  out.text(kStorageMeta);
  out.none();
  out.text(kVersion);
  out.text(metadata.version);
  out.set_all();
  out.build();
  return out.finish();
}

}  // namespace fsdp2::ckpt
