#include "core/ckpt/ranks/broadcast_source.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/ckpt/pickle/reader.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/value/box.h"
#include "core/comm/agreement.h"

namespace fsdp2::ckpt {

namespace {

// One entry as a tuple: name, path, dtype, shape, object, or the code and text of its error.
enum Field : size_t { kName, kPath, kDtype, kShape, kObject, kObjectError };

PythonValue path_value(const StatePath& path) {
  PythonList list;
  for (const PathPart& part : path) {
    const auto* text = std::get_if<std::string>(&part);
    list.items.push_back(text != nullptr ? PythonValue(*text)
                                         : PythonValue(std::get<int64_t>(part)));
  }
  return list;
}

// An object that cannot be read may be one that nobody wants.
void add_object(const StateSource& source, const StateEntry& entry, PythonTuple* fields) {
  try {
    fields->items[kObject] = source.read_object(entry);
  } catch (const Error& error) {
    fields->items[kObjectError] =
        PythonTuple{{static_cast<int64_t>(error.code()), error.message()}};
  }
}

std::string encode_entries(const StateSource& source) {
  PythonList list;
  for (const StateEntry& entry : source.entries()) {
    PythonTuple fields{{entry.name, path_value(entry.path), {}, {}, {}, {}}};
    if (entry.dtype) {
      fields.items[kDtype] = static_cast<int64_t>(*entry.dtype);
      fields.items[kShape] =
          PythonList{std::vector<PythonValue>(entry.shape.begin(), entry.shape.end())};
    } else {
      add_object(source, entry, &fields);
    }
    list.items.emplace_back(std::move(fields));
  }
  return write_pickle(list);
}

StateEntry decode_entry(const PythonTuple& fields, size_t index) {
  StateEntry entry{*fields.items[kName].as<std::string>(), {}, std::nullopt, {}, index};
  for (const PythonValue& part : fields.items[kPath].as<PythonList>()->items) {
    const auto* text = part.as<std::string>();
    entry.path.push_back(text != nullptr ? PathPart(*text) : PathPart(*part.as<int64_t>()));
  }
  if (const int64_t* dtype = fields.items[kDtype].as<int64_t>()) {
    entry.dtype = static_cast<at::ScalarType>(*dtype);
    for (const PythonValue& size : fields.items[kShape].as<PythonList>()->items) {
      entry.shape.push_back(*size.as<int64_t>());
    }
  }
  return entry;
}

std::optional<Error> decode_error(const PythonValue& value) {
  const auto* fields = value.as<PythonTuple>();
  if (fields == nullptr) {
    return std::nullopt;
  }
  return Error(static_cast<Code>(*fields->items[0].as<int64_t>()),
               *fields->items[1].as<std::string>());
}

std::string broadcast_text(Team& team, const std::string& text) {
  const at::Tensor bytes =
      at::scalar_tensor(static_cast<int64_t>(text.size()), at::device(at::kCPU).dtype(at::kLong));
  team.control().broadcast(bytes, 0).wait();
  const at::Tensor data = at::empty({bytes.item<int64_t>()}, at::device(at::kCPU).dtype(at::kByte));
  auto* begin = data.mutable_data_ptr<uint8_t>();
  std::copy(text.begin(), text.end(), begin);
  team.control().broadcast(data, 0).wait();
  return {begin, begin + data.numel()};
}

}  // namespace

BroadcastSource::BroadcastSource(Team& team, const StateSource* source, const std::string& name)
    : StateSource(name), team_(team), source_(source) {
  std::string text;
  agree(team, "sending " + name, [&] {
    FSDP2_CHECK((source != nullptr) == (team.rank() == 0), Code::kInvalidArgument,
                "rank {} {} a state to send, rank {} alone should have one", team.own_rank_in_job(),
                source != nullptr ? "has" : "lacks", team.rank_in_job(0));
    if (source != nullptr) {
      text = encode_entries(*source);
    }
    return std::string();
  });
  const PythonValue list = read_pickle(broadcast_text(team, text), PickleNames::kTorchSave, name);
  std::vector<StateEntry> entries;
  for (const PythonValue& item : list.as<PythonList>()->items) {
    const auto& fields = *item.as<PythonTuple>();
    entries.push_back(decode_entry(fields, entries.size()));
    objects_.push_back({fields.items[kObject], decode_error(fields.items[kObjectError])});
  }
  set_entries(std::move(entries));
}

void BroadcastSource::read(const StateEntry& entry, at::IntArrayRef begin,
                           const at::Tensor& out) const {
  const at::NoGradGuard no_grad;
  at::Tensor whole;
  agree(team_, fmt::format("reading from rank {}", team_.rank_in_job(0)), [&] {
    FSDP2_CHECK(entry.dtype && begin.size() == entry.shape.size() &&
                    out.dim() == static_cast<int64_t>(begin.size()),
                Code::kInvalidArgument, "{}: {} has {} dims, a box of {} was asked for", path(),
                entry.name, entry.shape.size(), begin.size());
    whole = source_ != nullptr ? read_whole(*source_, source_->entries()[entry.index])
                               : at::empty(entry.shape, at::device(at::kCPU).dtype(*entry.dtype));
    return "tensor=" + entry.name + "\n";
  });
  if (whole.numel() > 0) {
    team_.control().broadcast(whole.view(-1).view(at::kByte), 0).wait();
  }
  out.copy_(narrowed(whole, begin, out.sizes()));
}

PythonValue BroadcastSource::read_object(const StateEntry& entry) const {
  FSDP2_CHECK(!entry.dtype, Code::kInvalidArgument, "{}: {} is a tensor, expected an object",
              path(), entry.name);
  const Object& object = objects_[entry.index];
  if (object.error) {
    throw Error(*object.error);
  }
  return object.value;
}

void BroadcastSource::verify() const {
  agree(team_, "verifying " + path(), [&] {
    if (source_ != nullptr) {
      source_->verify();
    }
    return std::string();
  });
}

}  // namespace fsdp2::ckpt
