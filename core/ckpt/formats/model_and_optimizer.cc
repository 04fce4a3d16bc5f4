#include "core/ckpt/formats/model_and_optimizer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/dcp/dcp_listing.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/formats/place_of_model.h"
#include "core/ckpt/hugging_face/hugging_face_source.h"
#include "core/ckpt/state/joined_source.h"
#include "core/ckpt/torch/pth_listing.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/ckpt/torch/rank_files.h"

namespace fsdp2::ckpt {

namespace {

// In files of torch.save, in a DCP directory, or in the safetensors files of a model directory.
struct Part {
  enum class In { kDcp, kModelDirectory, kTorch };

  In in;
  std::string path;  // the directory, or what the files are called in messages
  StatePath under;
  std::vector<std::string> files;
  PthFiles kind = PthFiles::kOne;
};

// What each part is called, and where it goes: DCP directories have it in their names.
struct Role {
  const char* directory;
  std::vector<const char*> files;
  std::vector<const char*> stems;  // of ranks' files
  std::string_view under;
};

const std::vector<Role>& roles() {
  static const std::vector<Role> all = {
      {"pytorch_model_fsdp_0",
       {"pytorch_model_fsdp.bin"},
       {"pytorch_model_fsdp_0_", "model"},
       kModel},
      {"optimizer_0", {"optimizer.bin", "optimizer.pt"}, {"optimizer_0_", "optim"}, "optim"},
  };
  return all;
}

bool has_file(const Role& role, const std::string& name) {
  return std::find(role.files.begin(), role.files.end(), name) != role.files.end();
}

bool has_stem(const Role& role, const std::string& name) {
  return std::any_of(role.stems.begin(), role.stems.end(),
                     [&](const char* stem) { return starts_with(name, stem); });
}

bool names_model(const std::string& name) {
  const Role& model = roles().front();
  return name == model.directory || has_file(model, name) ||
         (is_rank_file(name) && has_stem(model, name));
}

bool names_optimizer(const std::string& name) {
  const Role& optimizer = roles().back();
  return name == optimizer.directory || has_file(optimizer, name);
}

Part part_of(const RankFileSet& ranks, const std::string& directory, StatePath under) {
  return {Part::In::kTorch, directory + "/" + ranks.stem + "rank*", std::move(under), ranks.files,
          PthFiles::kOneOfEachRank};
}

const RankFileSet* find_stem(const std::vector<RankFileSet>& all, const Role& role,
                             const std::string& directory) {
  const RankFileSet* found = nullptr;
  for (const RankFileSet& ranks : all) {
    if (has_stem(role, ranks.stem)) {
      FSDP2_CHECK(found == nullptr, Code::kInvalidArgument,
                  "{}: expected one {}, found {}rank* and {}rank*: move one away", directory,
                  role.under, found->stem, ranks.stem);
      found = &ranks;
    }
  }
  return found;
}

// Without a model among them, the files of one kind are all of a run.
std::vector<Part> rank_parts(const std::string& directory) {
  const std::vector<RankFileSet> all = find_rank_files(directory);
  std::vector<Part> parts;
  for (const Role& role : roles()) {
    if (const RankFileSet* ranks = find_stem(all, role, directory)) {
      parts.push_back(part_of(*ranks, directory, {std::string(role.under)}));
    }
  }
  if (parts.empty()) {
    FSDP2_CHECK(!all.empty(), Code::kNotFound,
                "{}: a link in it leads to no model, and there are no files of ranks", directory);
    FSDP2_CHECK(all.size() == 1, Code::kInvalidArgument,
                "{}: expected the files of one checkpoint, found {}rank* and {}rank*", directory,
                all[0].stem, all[1].stem);
    parts.push_back(part_of(all[0], directory, {}));
  }
  return parts;
}

std::optional<Part> find_part(const Role& role, const std::string& directory) {
  const std::string dcp = directory + "/" + role.directory;
  if (target_exists(dcp)) {
    return Part{Part::In::kDcp, dcp, {}, {}};
  }
  for (const char* name : role.files) {
    const std::string file = directory + "/" + name;
    if (target_exists(file)) {
      return Part{Part::In::kTorch, file, {std::string(role.under)}, {file}};
    }
  }
  return std::nullopt;
}

// Trainers that do not shard save the model as transformers has it.
std::vector<Part> parts_in(const std::string& directory) {
  std::vector<Part> parts;
  for (const Role& role : roles()) {
    if (auto part = find_part(role, directory)) {
      parts.push_back(std::move(*part));
    } else if (role.under == kModel && is_model_directory(PathContent(directory))) {
      parts.push_back({Part::In::kModelDirectory, directory, {std::string(kModel)}, {}});
    }
  }
  return parts.empty() ? rank_parts(directory) : parts;
}

std::unique_ptr<StateSource> open_part(const Part& part) {
  switch (part.in) {
    case Part::In::kDcp:
      return std::make_unique<DcpSource>(part.path);
    case Part::In::kModelDirectory:
      return open_model_directory(part.path);
    case Part::In::kTorch:
      break;
  }
  return std::make_unique<PthSource>(part.path, part.kind, part.files);
}

std::vector<ListedTensor> list_part(const Part& part) {
  switch (part.in) {
    case Part::In::kDcp:
      return list_dcp(part.path);
    case Part::In::kModelDirectory:
      return list_model_directory(part.path);
    case Part::In::kTorch:
      break;
  }
  return list_rank_files(part.files);
}

}  // namespace

bool is_model_and_optimizer(const PathContent& content) {
  return content.has_name(names_model) ||
         content.has_name(is_model_directory(content) ? names_optimizer : is_rank_file);
}

bool is_model_or_optimizer_file(const std::string& name) {
  return is_rank_file(name) || std::any_of(roles().begin(), roles().end(),
                                           [&](const Role& role) { return has_file(role, name); });
}

std::unique_ptr<StateSource> open_model_and_optimizer(const std::string& directory) {
  std::vector<JoinedSource::Part> sources;
  for (Part& part : parts_in(directory)) {
    sources.push_back({open_part(part), std::move(part.under)});
  }
  return std::make_unique<JoinedSource>(directory, std::move(sources));
}

std::vector<ListedTensor> list_model_and_optimizer(const std::string& directory) {
  std::vector<ListedTensor> all;
  for (const Part& part : parts_in(directory)) {
    for (ListedTensor& tensor : list_part(part)) {
      tensor.name = part.under.empty() ? tensor.name : name_of(part.under) + "." + tensor.name;
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

}  // namespace fsdp2::ckpt
