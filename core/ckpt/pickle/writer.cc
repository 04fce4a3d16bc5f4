#include "core/ckpt/pickle/writer.h"

#include <cstring>
#include <limits>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/pickle/dtype.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/pickle/utf8.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

std::string little_endian(uint64_t value, size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return bytes;
}

// Puts a tree's values one after the other.
class TreeWriter {
 public:
  explicit TreeWriter(PickleEmitter& out) : out_(out) {}

  void put(const PythonValue& value) {
    FSDP2_CHECK(depth_ < kMaxPickleDepth, Code::kInvalidArgument,
                "a value to be pickled is nested more than {} deep", kMaxPickleDepth);
    ++depth_;
    std::visit(*this, value.value);
    --depth_;
  }

  void operator()(const std::monostate&) { out_.none(); }
  void operator()(const bool& value) { out_.boolean(value); }
  void operator()(const int64_t& value) { out_.integer(value); }
  void operator()(const double& value) { out_.real(value); }
  void operator()(const std::string& value) { out_.text(value); }
  void operator()(const PythonBytes& value) { out_.bytes(value.bytes); }
  void operator()(const PythonList& value) { put_list(value.items); }
  void operator()(const PythonTuple& value) { put_tuple(value.items); }

  void operator()(const PythonSet& value) {
    out_.global("builtins.set");
    put_list(value.items);
    out_.tuple_of(1);
    out_.call();
  }

  void operator()(const PythonDict& value) {
    out_.empty_dict();
    if (value.items.empty()) {
      return;
    }
    out_.mark();
    for (const PythonItem& item : value.items) {
      put(item.key);
      put(item.value);
    }
    out_.set_all();
  }

  void operator()(const PythonObject& object) {
    FSDP2_CHECK(object.form != PythonObject::Form::kUnread, Code::kUnsupported, "{}", object.name);
    out_.global(object.name);
    if (object.form == PythonObject::Form::kName) {
      return;
    }
    put_tuple(object.arguments);
    if (object.form == PythonObject::Form::kCall) {
      out_.call();
    } else {
      out_.make_object();
    }
    if (!object.state.empty()) {
      put(object.state[0]);
      out_.build();
    }
  }

  // As torch.save does: torch._utils._rebuild_tensor_v2(storage, offset, size, stride,
  // requires_grad, OrderedDict()), and v3 with a dtype for those without a storage class.
  void operator()(const StoredTensor& tensor) {
    const char* dtype = torch_dtype_name(tensor.dtype);
    FSDP2_CHECK(dtype != nullptr, Code::kUnsupported, "torch.save cannot store the dtype {}",
                c10::toString(tensor.dtype));
    const char* storage = torch_storage_name(tensor.dtype);
    out_.global(storage != nullptr ? "torch._utils._rebuild_tensor_v2"
                                   : "torch._utils._rebuild_tensor_v3");
    out_.mark();
    put_storage(tensor, storage);
    out_.integer(tensor.storage_offset);
    put_integers(tensor.shape);
    put_integers(tensor.stride);
    out_.boolean(tensor.requires_grad);
    out_.global("collections.OrderedDict");
    out_.empty_tuple();
    out_.call();
    if (storage == nullptr) {
      out_.global(fmt::format("torch.{}", dtype));
    }
    out_.tuple();
    out_.call();
  }

 private:
  void put_storage(const StoredTensor& tensor, const char* storage) {
    const auto item_size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    out_.mark();
    out_.text("storage");
    out_.global(storage != nullptr ? fmt::format("torch.{}", storage)
                                   : "torch.storage.UntypedStorage");
    out_.text(tensor.storage);
    out_.text("cpu");
    out_.integer(storage != nullptr ? tensor.storage_numel : tensor.storage_numel * item_size);
    out_.tuple();
    out_.persistent_id();
  }

  void put_list(const std::vector<PythonValue>& items) {
    out_.empty_list();
    if (items.empty()) {
      return;
    }
    out_.mark();
    for (const PythonValue& item : items) {
      put(item);
    }
    out_.append_all();
  }

  void put_tuple(const std::vector<PythonValue>& items) {
    const bool is_short = items.size() <= 3;
    if (!is_short) {
      out_.mark();
    }
    for (const PythonValue& item : items) {
      put(item);
    }
    if (is_short) {
      out_.tuple_of(items.size());
    } else {
      out_.tuple();
    }
  }

  void put_integers(const std::vector<int64_t>& numbers) {
    out_.mark();
    for (const int64_t number : numbers) {
      out_.integer(number);
    }
    out_.tuple();
  }

  PickleEmitter& out_;
  size_t depth_ = 0;
};

}  // namespace

PickleEmitter::PickleEmitter() : bytes_("\x80\x02") {}

void PickleEmitter::none() { bytes_ += 'N'; }

void PickleEmitter::boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }

void PickleEmitter::integer(int64_t value) {
  const auto bits = static_cast<uint64_t>(value);
  if (value >= 0 && value <= 0xFF) {
    bytes_ += 'K';
    bytes_ += little_endian(bits, 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    bytes_ += 'M';
    bytes_ += little_endian(bits, 2);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    bytes_ += 'J';
    bytes_ += little_endian(bits, 4);
  } else {
    bytes_ += "\x8a\x08";
    bytes_ += little_endian(bits, 8);
  }
}

void PickleEmitter::real(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::string little = little_endian(bits, 8);
  bytes_ += 'G';
  bytes_.append(little.rbegin(), little.rend());
}

void PickleEmitter::text(std::string_view value) {
  FSDP2_CHECK(is_utf8(value), Code::kInvalidArgument, "text to be pickled is not UTF-8: {}",
              printable_name(value));
  FSDP2_CHECK(value.size() < kMaxPickleBytes, Code::kInvalidArgument,
              "text of {} bytes is too long to be pickled", value.size());
  bytes_ += 'X';
  bytes_ += little_endian(value.size(), 4);
  bytes_ += value;
}

void PickleEmitter::bytes(std::string_view value) {
  global("_codecs.encode");
  text(utf8_of_latin1(value));
  text("latin1");
  tuple_of(2);
  call();
}

void PickleEmitter::global(std::string_view name) {
  const auto found = globals_.find(name);
  if (found != globals_.end()) {
    bytes_ += found->second <= 0xFF ? 'h' : 'j';
    bytes_ += little_endian(found->second, found->second <= 0xFF ? 1 : 4);
    return;
  }
  const size_t dot = name.rfind('.');
  FSDP2_CHECK(dot != std::string_view::npos && name.find('\n') == std::string_view::npos,
              Code::kInvalidArgument, "{} is no module and name", printable_name(name));
  const std::string_view module = name.substr(0, dot);
  bytes_ += 'c';
  // Protocol 2 goes by the module names of Python 2.
  bytes_ += module == "builtins" ? "__builtin__" : module;
  bytes_ += '\n';
  bytes_ += name.substr(dot + 1);
  bytes_ += '\n';
  const auto number = static_cast<uint32_t>(globals_.size());
  globals_.emplace(name, number);
  bytes_ += number <= 0xFF ? 'q' : 'r';
  bytes_ += little_endian(number, number <= 0xFF ? 1 : 4);
}

void PickleEmitter::empty_list() { bytes_ += ']'; }
void PickleEmitter::empty_dict() { bytes_ += '}'; }
void PickleEmitter::empty_tuple() { bytes_ += ')'; }
void PickleEmitter::mark() { bytes_ += '('; }
void PickleEmitter::append_all() { bytes_ += 'e'; }
void PickleEmitter::set_all() { bytes_ += 'u'; }
void PickleEmitter::tuple() { bytes_ += 't'; }
void PickleEmitter::call() { bytes_ += 'R'; }
void PickleEmitter::make_object() { bytes_ += '\x81'; }
void PickleEmitter::build() { bytes_ += 'b'; }
void PickleEmitter::persistent_id() { bytes_ += 'Q'; }

void PickleEmitter::tuple_of(size_t count) {
  FSDP2_CHECK(count <= 3, Code::kInternal, "a short tuple of {}", count);
  bytes_ += count == 0 ? ')' : static_cast<char>(0x84 + count);
}

void PickleEmitter::torch_size(at::IntArrayRef sizes) {
  global("torch.Size");
  mark();
  for (const int64_t size : sizes) {
    integer(size);
  }
  tuple();
  tuple_of(1);
  call();
}

std::string PickleEmitter::finish() {
  bytes_ += '.';
  return std::move(bytes_);
}

std::string write_pickle(const PythonValue& value) {
  PickleEmitter out;
  TreeWriter(out).put(value);
  return out.finish();
}

}  // namespace fsdp2::ckpt
