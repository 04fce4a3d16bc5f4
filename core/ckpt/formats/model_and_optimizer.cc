#include "core/ckpt/formats/model_and_optimizer.h"

#include <algorithm>
#include <utility>

#include "core/base/directory.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/ckpt/dcp/dcp_listing.h"
#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/hugging_face/hugging_face_source.h"
#include "core/ckpt/state/joined_source.h"
#include "core/ckpt/torch/pth_listing.h"
#include "core/ckpt/torch/pth_source.h"
#include "core/ckpt/torch/rank_files.h"

namespace fsdp2::ckpt {

namespace {

struct Part {
  std::string path;                // a DCP directory, or what the files are called in messages
  std::vector<std::string> files;  // of torch.save; none: a DCP directory
  PthFiles kind = PthFiles::kOne;
  StatePath under;
};

// What the names of each part begin with, and where it goes: DCP directories have it in their
// names.
struct Role {
  const char* directory;
  const char* file;
  std::vector<const char*> stems;  // of ranks' files
  const char* under;
};

const std::vector<Role>& roles() {
  static const std::vector<Role> all = {
      {"pytorch_model_fsdp_0",
       "pytorch_model_fsdp.bin",
       {"pytorch_model_fsdp_0_", "model"},
       "model"},
      {"optimizer_0", "optimizer.bin", {"optimizer_0_", "optim"}, "optim"},
  };
  return all;
}

bool has_stem(const Role& role, const std::string& name) {
  return std::any_of(role.stems.begin(), role.stems.end(),
                     [&](const char* stem) { return starts_with(name, stem); });
}

bool names_model(const std::string& name) {
  const Role& model = roles().front();
  return name == model.directory || name == model.file ||
         (is_rank_file(name) && has_stem(model, name));
}

Part part_of(const RankFileSet& ranks, const std::string& directory, StatePath under) {
  return {directory + "/" + ranks.stem + "rank*", ranks.files, PthFiles::kOneOfEachRank,
          std::move(under)};
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

std::vector<Part> parts_in(const std::string& directory) {
  std::vector<Part> parts;
  for (const Role& role : roles()) {
    const std::string dcp = directory + "/" + role.directory;
    const std::string file = directory + "/" + role.file;
    if (target_exists(dcp)) {
      parts.push_back({dcp, {}, PthFiles::kOne, {}});
    } else if (target_exists(file)) {
      parts.push_back({file, {file}, PthFiles::kOne, {std::string(role.under)}});
    }
  }
  return parts.empty() ? rank_parts(directory) : parts;
}

}  // namespace

bool is_model_and_optimizer(const PathContent& content) {
  return content.has_name(names_model) ||
         (content.has_name(is_rank_file) && !is_model_directory(content));
}

bool is_model_or_optimizer_file(const std::string& name) {
  return is_rank_file(name) || std::any_of(roles().begin(), roles().end(),
                                           [&](const Role& role) { return name == role.file; });
}

std::unique_ptr<StateSource> open_model_and_optimizer(const std::string& directory) {
  std::vector<JoinedSource::Part> sources;
  for (Part& part : parts_in(directory)) {
    std::unique_ptr<StateSource> source;
    if (part.files.empty()) {
      source = std::make_unique<DcpSource>(part.path);
    } else {
      source = std::make_unique<PthSource>(part.path, part.kind, part.files);
    }
    sources.push_back({std::move(source), std::move(part.under)});
  }
  return std::make_unique<JoinedSource>(directory, std::move(sources));
}

std::vector<ListedTensor> list_model_and_optimizer(const std::string& directory) {
  std::vector<ListedTensor> all;
  for (const Part& part : parts_in(directory)) {
    for (ListedTensor& tensor :
         part.files.empty() ? list_dcp(part.path) : list_rank_files(part.files)) {
      tensor.name = part.under.empty() ? tensor.name : name_of(part.under) + "." + tensor.name;
      all.push_back(std::move(tensor));
    }
  }
  return all;
}

}  // namespace fsdp2::ckpt
