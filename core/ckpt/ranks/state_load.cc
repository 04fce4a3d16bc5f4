#include "core/ckpt/ranks/state_load.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/formats/open_checkpoint.h"
#include "core/ckpt/state/state_source.h"
#include "core/ckpt/store/find_checkpoint.h"
#include "core/ckpt/store/steady_path.h"
#include "core/comm/agreement.h"

namespace fsdp2::ckpt {

namespace {

constexpr size_t kNamesInMessage = 8;

const StateEntry* find_tensor(const StateSource& source, const StateTensor& tensor) {
  const StateEntry* entry = source.find(tensor.name);
  for (size_t i = 0; entry == nullptr && i < tensor.aliases.size(); ++i) {
    entry = source.find(tensor.aliases[i]);
  }
  return entry;
}

void check_names(const StateSource& source, const StateDict& state) {
  std::vector<std::string> missing;
  for (const StateTensor& tensor : state.tensors) {
    if (find_tensor(source, tensor) == nullptr) {
      missing.push_back(tensor.name);
    }
  }
  for (const StateObject& object : state.objects) {
    if (source.find(object.name) == nullptr) {
      missing.push_back(object.name);
    }
  }
  FSDP2_CHECK(missing.empty(), Code::kNotFound, "{}: {} names are missing: {}", source.path(),
              missing.size(), list_some(missing, kNamesInMessage));
}

void check_kinds(const StateSource& source, const StateDict& state) {
  for (const StateTensor& tensor : state.tensors) {
    const StateEntry& entry = *find_tensor(source, tensor);
    FSDP2_CHECK(entry.dtype && entry.shape == tensor.shape, Code::kInvalidArgument,
                "{}: {} is [{}], the state has [{}]", source.path(), entry.name,
                entry.dtype ? fmt::to_string(fmt::join(entry.shape, ", ")) : "no tensor",
                fmt::join(tensor.shape, ", "));
  }
  for (const StateObject& object : state.objects) {
    FSDP2_CHECK(!source.find(object.name)->dtype, Code::kInvalidArgument,
                "{}: {} is a tensor, the state has {}", source.path(), object.name,
                kind_name(object.value));
  }
}

void fill(const StateSource& source, StateDict* state) {
  check_names(source, *state);
  check_kinds(source, *state);
  for (StateTensor& tensor : state->tensors) {
    if (tensor.local.numel() > 0) {
      source.read(*find_tensor(source, tensor), tensor.offsets, tensor.local);
    }
  }
  for (StateObject& object : state->objects) {
    object.value = source.read_object(*source.find(object.name));
  }
}

}  // namespace

void load_state(Team& team, const std::string& path, StateDict* state) {
  const at::NoGradGuard no_grad;
  agree(team, "loading " + path, [&] {
    const std::string found = find_checkpoint(path);
    const SteadyPath steady(found);
    steady.explain([&] { fill(*open_checkpoint(found), state); });
    steady.check();
    return fmt::format("checkpoint={}\n", std::filesystem::path(found).filename().string());
  });
}

}  // namespace fsdp2::ckpt
