// Reads pickles, Python's format for objects, without running anything.
//
// A pickle is a program for a small stack machine. This reader executes the operations that build
// plain data, and those that name a class or function only if the name is on its list; such a name
// is a tag that is never looked up. Everything else is refused: other names (or the value that
// needs them stays unread), operations that data does not need, values that contain themselves.
//
// A file cannot make it use more than memory and time in proportion to the file's size: counts are
// compared with the bytes that are left, nesting is limited, memory is counted before it is taken,
// and a value that is used in several places (a short pickle can describe a huge tree that way) is
// counted at each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// Which names a pickle may use.
enum class PickleNames {
  // data.pkl of a torch.save archive: tensors, storages, dtypes, torch.Size, torch.device,
  // OrderedDict, Counter, set, bytes. Tensors become StoredTensor, torch.Size a tuple, the rest
  // the plain values they are.
  kTorchSave,
  // The same of any trainer. DTensors and ShardedTensors become StoredTensors with a part, and what
  // needs other names (a trainer's options, numpy's arrays) or integers beyond 64 bits an object
  // that was not read.
  kAnyTorchSave,
  // data.pkl and constants.pkl of a TorchScript program: those of torch.save, objects of the
  // program's own classes, and lists and dicts with their types, which are left out.
  kTorchScript,
  // .metadata of a DCP directory: its classes as objects, dtypes, torch.Size as a tuple, paths.
  kDcpMetadata,
};

// The value of a whole pickle of protocol 2 to 5. `file` is for messages.
// Errors: kCorruptData for a pickle that is damaged or names what is not allowed; kUnsupported for
// what is legal but not read here (integers beyond 64 bits, quantized or sparse tensors).
PythonValue read_pickle(std::string_view bytes, PickleNames names, const std::string& file);

inline constexpr size_t kMaxPickleBytes = size_t{1} << 30;
inline constexpr size_t kMaxPickleDepth = 200;

}  // namespace fsdp2::ckpt
