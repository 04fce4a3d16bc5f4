// Writes pickles of protocol 2 in the operations that torch.load(weights_only=True) accepts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/ckpt/value/python_value.h"

namespace fsdp2::ckpt {

// The pickle of a value. Equal values give equal bytes. Errors: kInvalidArgument for text that is
// not UTF-8, or nesting beyond kMaxPickleDepth;
// kUnsupported for a dtype that torch.save has no storage for.
std::string write_pickle(const PythonValue& value);

// Operation by operation, for pickles too large to be built as a tree first. What is put together
// is the caller's responsibility:
//
//   PickleEmitter out;
//   out.empty_dict();
//   out.mark();
//   out.text("step");
//   out.integer(3);
//   out.set_all();                     // {"step": 3}
//   std::string bytes = out.finish();
class PickleEmitter {
 public:
  PickleEmitter();

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void real(double value);
  void text(std::string_view value);
  void bytes(std::string_view value);
  // Module and name, "torch.Size"; the second time as a reference to the first.
  void global(std::string_view name);
  void empty_list();
  void empty_dict();
  void empty_tuple();
  void mark();
  // These take what was put since the last mark.
  void append_all();  // to the list below the mark
  void set_all();     // keys and values, into the dict below the mark
  void tuple();
  // Short tuples without a mark: the last `count` values.
  void tuple_of(size_t count);
  void call();         // callable, arguments -> result
  void make_object();  // class, arguments -> object
  void build();        // object, state -> object
  void persistent_id();

  // tuple of integers, called by torch.Size.
  void torch_size(at::IntArrayRef sizes);

  // The bytes; the emitter is spent.
  std::string finish();

 private:
  std::string bytes_;
  std::map<std::string, uint32_t, std::less<>> globals_;
};

}  // namespace fsdp2::ckpt
