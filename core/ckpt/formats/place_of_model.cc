#include "core/ckpt/formats/place_of_model.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::ckpt {

namespace {

constexpr char kStateDict[] = "state_dict";

bool is_under(const StatePath& place, const StateEntry& entry) {
  return entry.path.size() > place.size() &&
         std::equal(place.begin(), place.end(), entry.path.begin());
}

std::string name_below(const StatePath& place, const StateEntry& entry) {
  return name_of(
      {entry.path.begin() + static_cast<std::ptrdiff_t>(place.size()), entry.path.end()});
}

bool is_of_lightning(const StateSource& source) {
  std::error_code error;
  return source.find("pytorch-lightning_version") != nullptr ||
         std::filesystem::exists(source.path() + "/meta.pt", error);
}

// The first part of the names, with its dot; "" if they differ in it.
std::string common_begin(const StateSource& source, const StatePath& place) {
  std::set<std::string> begins;
  for (const StateEntry& entry : source.entries()) {
    if (entry.dtype && is_under(place, entry)) {
      const std::string name = name_below(place, entry);
      begins.insert(name.substr(0, name.find('.') + 1));
    }
  }
  return begins.size() == 1 ? *begins.begin() : "";
}

// The dicts of that name that have tensors.
std::set<StatePath> places_named(const StateSource& source, const std::string& name) {
  const PathPart part = name;
  std::set<StatePath> places;
  for (const StateEntry& entry : source.entries()) {
    const auto found = std::find(entry.path.begin(), entry.path.end(), part);
    if (entry.dtype && entry.path.end() - found > 1) {
      places.emplace(entry.path.begin(), found + 1);
    }
  }
  return places;
}

}  // namespace

bool PlaceOfModel::has(const StateEntry& entry) const {
  return !dict.empty() && is_under(dict, entry);
}

StatePath PlaceOfModel::path_in_model(const StateEntry& entry) const {
  if (!begin.empty()) {
    return {name_below(dict, entry).substr(begin.size())};
  }
  return {entry.path.begin() + static_cast<std::ptrdiff_t>(dict.size()), entry.path.end()};
}

PlaceOfModel place_of_model(const StateSource& source) {
  const std::set<StatePath> models = places_named(source, kModel);
  if (models.count({std::string(kModel)}) != 0) {
    return {{std::string(kModel)}, ""};
  }
  std::vector<std::string> names;
  for (const StatePath& place : models) {
    names.push_back(printable_name(name_of(place)));
  }
  constexpr size_t kNamesInMessage = 8;
  FSDP2_CHECK(names.size() <= 1, Code::kInvalidArgument, "{}: expected one model, found {}: {}",
              source.path(), names.size(), list_some(names, kNamesInMessage));
  if (!models.empty()) {
    return {*models.begin(), ""};
  }
  const StatePath place = {std::string(kStateDict)};
  if (places_named(source, kStateDict).count(place) == 0) {
    return {};
  }
  return {place, is_of_lightning(source) ? common_begin(source, place) : ""};
}

}  // namespace fsdp2::ckpt
