package fsdp2

import "fsdp2/internal/capi"

// These functions work on files: without a mesh, and for any format.

// CheckSavePath checks whether a save may replace what is at the path, and whether no other run saves into the series that it is of, so
// that a program can ask before hours of training and not after. ErrIO says what is in the way and what to do.
func CheckSavePath(path string, options *SaveOptions) error {
	return failure(capi.CheckpointCheckPath(path, options.raw()))
}

// FindCheckpoint returns the path that Checkpoint.Load would read: the path itself, or the newest complete checkpoint in it. ErrNotFound
// if there is none.
func FindCheckpoint(path string) (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.CheckpointFind(path, buf, cap, needed)
	})
}

// InspectCheckpoint describes the contents as JSON: the format, the step, the number of ranks that saved it, the tensors with dtype,
// shape, bytes, and chunks with file and checksum, the objects with their values. It reads no values of tensors.
func InspectCheckpoint(path string) (string, error) {
	return text(func(buf *byte, cap uint, needed *uint) error {
		return capi.CheckpointInspect(path, buf, cap, needed)
	})
}

// VerifyCheckpoint reads everything and compares every checksum. ErrCorruptData names the file and the item.
func VerifyCheckpoint(path string) error {
	return failure(capi.CheckpointVerify(path))
}

// RebuildManifest writes the checksums of a DCP directory that another program has written or changed.
func RebuildManifest(path string) error {
	return failure(capi.CheckpointRebuildManifest(path))
}

// ConvertOptions say what to write. The zero value has the defaults.
type ConvertOptions struct {
	Format       CheckpointFormat
	ModelOnly    bool   // leave out all but the model
	Ranks        int    // per-rank files: their number; 0: one
	Step         int    // per-rank files: the number in their names
	MaxFileBytes int    // as in SaveOptions
	ConfigPath   string // model directory: a config.json; "": the source's
}

// ConvertCheckpoint converts the checkpoint from into to, with one tensor in memory at a time. Whole-model formats get the model alone,
// under the model's own names. What is at to is replaced by the rules of Checkpoint.Save.
func ConvertCheckpoint(from, to string, options ConvertOptions) error {
	var memory capi.Memory
	defer memory.Free()
	raw := sized[capi.ConvertOptions]()
	raw.Format, raw.ModelOnly, raw.Ranks = int32(options.Format), flag(options.ModelOnly), to32(options.Ranks)
	raw.Step, raw.MaxFileBytes = int64(options.Step), int64(options.MaxFileBytes)
	raw.ConfigPath = memory.OptionalString(options.ConfigPath)
	return failure(capi.CheckpointConvert(from, to, &raw))
}
