#include "core/ckpt/state/joined_source.h"

#include <utility>

namespace fsdp2::ckpt {

JoinedSource::JoinedSource(const std::string& path, std::vector<Part> parts)
    : StateSource(path), parts_(std::move(parts)) {
  std::vector<StateEntry> entries;
  for (const Part& part : parts_) {
    for (const StateEntry& entry : part.source->entries()) {
      StateEntry joined = entry;
      joined.path.insert(joined.path.begin(), part.under.begin(), part.under.end());
      joined.name = part.under.empty() ? entry.name : name_of(part.under) + "." + entry.name;
      joined.index = places_.size();
      places_.push_back({part.source.get(), &entry});
      entries.push_back(std::move(joined));
    }
  }
  set_entries(std::move(entries));
}

void JoinedSource::read(const StateEntry& entry, at::IntArrayRef begin,
                        const at::Tensor& out) const {
  const Place& place = places_[entry.index];
  place.source->read(*place.entry, begin, out);
}

PythonValue JoinedSource::read_object(const StateEntry& entry) const {
  const Place& place = places_[entry.index];
  return place.source->read_object(*place.entry);
}

void JoinedSource::verify() const {
  for (const Part& part : parts_) {
    part.source->verify();
  }
}

}  // namespace fsdp2::ckpt
