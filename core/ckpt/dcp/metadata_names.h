// The classes, functions and fields of torch.distributed.checkpoint's metadata. Fields stand in the
// order in which Python writes them.
#pragma once

namespace fsdp2::ckpt {

// Metadata
inline constexpr char kMetadata[] = "torch.distributed.checkpoint.metadata.Metadata";
inline constexpr char kStateDictMetadata[] = "state_dict_metadata";
inline constexpr char kPlannerData[] = "planner_data";
inline constexpr char kStorageData[] = "storage_data";
inline constexpr char kStorageMeta[] = "storage_meta";
inline constexpr char kVersion[] = "version";

// TensorStorageMetadata; BytesStorageMetadata has no state
inline constexpr char kTensorStorageMetadata[] =
    "torch.distributed.checkpoint.metadata.TensorStorageMetadata";
inline constexpr char kProperties[] = "properties";
inline constexpr char kSize[] = "size";
inline constexpr char kChunks[] = "chunks";
inline constexpr char kBytesStorageMetadata[] =
    "torch.distributed.checkpoint.metadata.BytesStorageMetadata";

// ChunkStorageMetadata
inline constexpr char kChunkStorageMetadata[] =
    "torch.distributed.checkpoint.metadata.ChunkStorageMetadata";
inline constexpr char kOffsets[] = "offsets";
inline constexpr char kSizes[] = "sizes";

// TensorProperties: a tuple of five
inline constexpr char kTensorProperties[] =
    "torch.distributed.checkpoint.metadata.TensorProperties";
inline constexpr char kGetLayout[] = "torch.serialization._get_layout";
inline constexpr char kStridedLayout[] = "torch.strided";
inline constexpr char kMemoryFormat[] =
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING";

// MetadataIndex
inline constexpr char kMetadataIndex[] = "torch.distributed.checkpoint.metadata.MetadataIndex";
inline constexpr char kFqn[] = "fqn";
inline constexpr char kIndex[] = "index";
inline constexpr char kOffset[] = "offset";

// _StorageInfo
inline constexpr char kStorageInfo[] = "torch.distributed.checkpoint.filesystem._StorageInfo";
inline constexpr char kRelativePath[] = "relative_path";
inline constexpr char kLength[] = "length";
inline constexpr char kTransforms[] = "transform_descriptors";

}  // namespace fsdp2::ckpt
