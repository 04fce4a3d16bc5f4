// Checklist, planning of checkpoints: PLN. What a rank would write is its state dict, the merged
// plan is the metadata of the directory, and what is to be read of it follows from the boxes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/ckpt/dcp/dcp_source.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/ranks/sharded_save.h"
#include "core/ckpt/ranks/write_plan.h"
#include "core/ckpt/state/state_tree.h"
#include "core/ckpt/value/box.h"
#include "core/train/state/training_state.h"
#include "tests/core/ckpt/ranks/checkpoint_fixture.h"
#include "tests/parity/checklist/expected_error.h"
#include "tests/parity/checklist/sharding.h"
#include "tests/support/averaged_reference.h"
#include "tests/support/ranks.h"

namespace fsdp2::checklist {
namespace {

using ckpt::Box;
using ckpt::DcpEntry;
using ckpt::DcpMetadata;
using ckpt::DcpSource;
using ckpt::PythonDict;
using ckpt::PythonList;
using ckpt::PythonTuple;
using ckpt::PythonValue;
using ckpt::StateDict;
using ckpt::StatePath;
using ckpt::StoredTensor;

using Numbers = std::vector<int64_t>;

class ChecklistPln : public FileTest {
 protected:
  // `state_of` this rank and world size, written by ranks as threads.
  template <class StateOf>
  void save(const std::string& name, int ranks, const StateOf& state_of) const {
    run_ranks(ranks, [&](const WorldPtr& world) {
      ckpt::ShardedSaver(flat_mesh(world)).save(state_of(world->rank(), ranks), {path(name)});
    });
  }
};

// A plain tensor, 32 elements cut evenly, and a value.
StateDict small_state(int rank, int world) {
  StateDict state;
  state.add_whole({"plain"}, at::ones({10}));
  ckpt::add_rows(&state, {"cut"}, at::arange(32, at::kFloat), rank, world);
  state.add_object({"value"}, PythonList{{1, 2, 3}});
  return state;
}

// 128 elements cut evenly.
StateDict long_state(int rank, int world) {
  StateDict state;
  ckpt::add_rows(&state, {"long"}, at::arange(128, at::kFloat), rank, world);
  return state;
}

const DcpEntry& entry_of(const DcpSource& directory, const std::string& name) {
  const DcpEntry* entry = directory.metadata().find(name);
  EXPECT_NE(entry, nullptr) << name;
  return *entry;
}

TEST_F(ChecklistPln, PLN1_EveryRankPlansWhatItHoldsAndTheMergeLeavesOneOfEach) {
  constexpr int kRanks = 4;
  std::vector<std::vector<size_t>> written(kRanks);
  run_ranks(kRanks, [&](const WorldPtr& world) {
    const StateDict state = small_state(world->rank(), kRanks);
    written[static_cast<size_t>(world->rank())] = ckpt::tensors_to_write(*world, state);
    if (world->rank() == 1) {
      const ckpt::StateTensor& plain = state.tensors[0];
      EXPECT_EQ(plain.name, "plain");
      EXPECT_EQ(plain.offsets, Numbers{0});
      EXPECT_EQ(plain.local.sizes(), at::IntArrayRef{10});
      const ckpt::StateTensor& cut = state.tensors[1];
      EXPECT_EQ(cut.name, "cut");
      EXPECT_EQ(cut.offsets, Numbers{8});
      EXPECT_EQ(cut.local.sizes(), at::IntArrayRef{8});
      EXPECT_EQ(cut.local.scalar_type(), at::kFloat);
      EXPECT_EQ(cut.shape, Numbers{32});
      EXPECT_EQ(state.objects[0].name, "value");
    }
  });
  size_t plain = 0;
  for (const std::vector<size_t>& own : written) {
    EXPECT_EQ(std::count(own.begin(), own.end(), 1U), 1);
    plain += static_cast<size_t>(std::count(own.begin(), own.end(), 0U));
  }
  EXPECT_EQ(plain, 1U);
  save("run", kRanks, small_state);
  const DcpSource run(path("run"));
  EXPECT_EQ(entry_of(run, "plain").storage.size(), 1U);
  EXPECT_EQ(entry_of(run, "value").storage.size(), 1U);
}

TEST_F(ChecklistPln, PLN2_EveryChunkOfTheMergedPlanLiesWhereItsIndexSays) {
  save("run", 4, small_state);
  const DcpSource run(path("run"));
  EXPECT_EQ(run.metadata().entries().size(), 3U);
  EXPECT_FALSE(entry_of(run, "value").tensor);
  EXPECT_EQ(entry_of(run, "plain").tensor->shape, Numbers{10});
  const DcpEntry& cut = entry_of(run, "cut");
  EXPECT_EQ(cut.tensor->shape, Numbers{32});
  EXPECT_EQ(cut.tensor->dtype, at::kFloat);
  ASSERT_EQ(cut.tensor->chunks.size(), 4U);
  ASSERT_EQ(cut.storage.size(), 4U);
  std::set<Numbers> offsets;
  for (size_t i = 0; i < cut.storage.size(); ++i) {
    const Box& chunk = cut.tensor->chunks[i];
    EXPECT_EQ(chunk.sizes, Numbers{8});
    offsets.insert(chunk.offsets);
    at::Tensor values = at::empty({8});
    const ckpt::DcpItemFile file(run.path() + "/" + cut.storage[i].relative_path);
    file.read_box(cut, i, {0}, values);
    EXPECT_TRUE(values.equal(at::arange(8, at::kFloat) + chunk.offsets[0])) << i;
  }
  EXPECT_EQ(offsets, (std::set<Numbers>{{0}, {8}, {16}, {24}}));
}

TEST_F(ChecklistPln, PLN3_TheSameRankReadsThreeItemsWhole) {
  save("run", 4, small_state);
  const DcpSource run(path("run"));
  const StateDict own = small_state(1, 4);
  for (const ckpt::StateTensor& tensor : own.tensors) {
    const std::vector<Box>& chunks = entry_of(run, tensor.name).tensor->chunks;
    const auto parts = ckpt::parts_of_box(chunks, tensor.offsets, tensor.local.sizes());
    ASSERT_EQ(parts.size(), 1U) << tensor.name;
    EXPECT_EQ(parts[0].in_chunk, Numbers{0});
    EXPECT_EQ(parts[0].in_box, Numbers{0});
    EXPECT_EQ(parts[0].sizes, chunks[parts[0].chunk].sizes);
    EXPECT_EQ(parts[0].sizes, tensor.local.sizes().vec());
  }
  EXPECT_EQ(run.read_object(*run.find("value")), own.objects[0].value);
}

TEST_F(ChecklistPln, PLN4_OtherNumbersOfRanksReadPartsOfChunks) {
  save("of-8", 8, long_state);
  save("of-4", 4, long_state);
  const auto parts_read = [&](const char* name, int rank, int world) {
    const DcpSource run(path(name));
    const StateDict state = long_state(rank, world);
    const at::Tensor values = at::zeros_like(state.tensors[0].local);
    run.read(*run.find("long"), state.tensors[0].offsets, values);
    EXPECT_TRUE(values.equal(state.tensors[0].local)) << name;
    return ckpt::parts_of_box(entry_of(run, "long").tensor->chunks, state.tensors[0].offsets,
                              values.sizes());
  };
  std::map<int64_t, Numbers> wholes;  // dest offset -> storage offset, length
  for (const ckpt::BoxPart& part : parts_read("of-8", 1, 4)) {
    wholes[part.in_box[0]] = {part.in_chunk[0], part.sizes[0]};
  }
  EXPECT_EQ(wholes, (std::map<int64_t, Numbers>{{0, {0, 16}}, {16, {0, 16}}}));
  const auto upper = parts_read("of-4", 1, 8);
  ASSERT_EQ(upper.size(), 1U);
  EXPECT_EQ(upper[0].in_chunk, Numbers{16});
  EXPECT_EQ(upper[0].in_box, Numbers{0});
  EXPECT_EQ(upper[0].sizes, Numbers{16});
}

DcpEntry cut_at(const std::vector<Box>& chunks) {
  DcpEntry entry{"t", {"t"}, ckpt::ChunkedTensor{at::kFloat, {4, 4}, chunks}, {}};
  for (size_t i = 0; i < chunks.size(); ++i) {
    entry.storage.push_back({"__0_0.distcp", static_cast<int64_t>(i) * 100, 100, {}});
  }
  return entry;
}

TEST_F(ChecklistPln, PLN5_ChunksThatTileTheTensorAreAccepted) {
  const DcpEntry tiled = cut_at({{{0, 0}, {2, 4}}, {{2, 0}, {2, 1}}, {{2, 1}, {2, 3}}});
  DcpMetadata metadata;
  metadata.add(tiled);
  const DcpMetadata read = ckpt::decode_dcp_metadata(ckpt::encode_dcp_metadata(metadata), "m");
  EXPECT_TRUE(ckpt::covers(*read.find("t")->tensor));
  EXPECT_FALSE(ckpt::covers(*cut_at({{{0, 0}, {2, 4}}, {{2, 1}, {2, 3}}}).tensor));
  DcpMetadata overlapping;
  overlapping.add(cut_at({{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}));
  expect_error(Code::kInvalidArgument, {"t"}, [&] { ckpt::encode_dcp_metadata(overlapping); });
}

// Linear 2 -> 2 and, if asked for, a further 2 x 2 parameter.
std::shared_ptr<Sequence> linears(bool has_extra, uint64_t number) {
  std::vector<ModulePtr> items{std::make_shared<Linear>(2, 2)};
  if (has_extra) {
    items.push_back(std::make_shared<Linear>(2, 2, /*has_bias=*/false));
  }
  return seed(std::make_shared<Sequence>(items), number);
}

TEST_F(ChecklistPln, PLN6_AMissingKeyIsRefusedUnlessALoadMayBePartial) {
  run_ranks(2, [&](const WorldPtr& world) {
    train::TrainingObjects saved;
    const auto one = linears(false, 1);
    const UnitPtr small = fsdp::fully_shard(one, flat_mesh(world), policy_unset());
    saved.root = small.get();
    ckpt::ShardedSaver(flat_mesh(world)).save(train::state_to_save(saved), {path("run")});

    train::TrainingObjects loaded;
    const auto two = linears(true, 2);
    const UnitPtr large = fsdp::fully_shard(two, flat_mesh(world), policy_unset());
    loaded.root = large.get();
    expect_error(Code::kNotFound, {"missing key", "model.1.weight"},
                 [&] { train::load_training_state(loaded, path("run"), /*partial=*/false); });
    const train::LoadReport report = train::load_training_state(loaded, path("run"), true);
    EXPECT_EQ(report.missing, std::vector<std::string>{"model.1.weight"});
    for (const fsdp::ShardedParam* param : large->parameters()) {
      const auto expected = linears(true, param->name() == "1.weight" ? 2 : 1);
      EXPECT_TRUE(
          param->local_values().equal(slice_of(*param, find_parameter(*expected, param->name()))))
          << param->name();
    }
  });
}

TEST_F(ChecklistPln, PLN7_TheFormatsVersionIsThereAndANewerMajorOneIsRefused) {
  save("run", 1, small_state);
  EXPECT_EQ(DcpSource(path("run")).metadata().version, "1.0.0");
  std::string bytes = contents(path("run/.metadata"));
  const size_t version = bytes.find("1.0.0");
  ASSERT_NE(version, std::string::npos);
  write("run/.metadata", bytes.replace(version, 1, "2"));
  std::filesystem::remove(path("run/fsdp2_manifest"));  // as another program's directory
  expect_error(Code::kUnsupported, {".metadata", "version 2.0.0"},
               [&] { DcpSource run(path("run")); });
}

PythonValue tensor_number(int64_t number) { return ckpt::describe_tensor(number, at::kFloat, {2}); }

// Leaves as a state: tensor `n` is filled with n.
StateDict state_of_leaves(const PythonValue& tree) {
  StateDict state;
  for (const ckpt::TreeLeaf& leaf : ckpt::flatten_tree(tree)) {
    if (const auto* tensor = leaf.value->as<StoredTensor>()) {
      state.add_whole(leaf.path, at::full({2}, std::stod(tensor->storage)));
    } else {
      state.add_object(leaf.path, *leaf.value);
    }
  }
  return state;
}

PythonValue tree_of(const ckpt::StateSource& source) {
  std::vector<std::pair<StatePath, PythonValue>> values;
  for (const ckpt::StateEntry& entry : source.entries()) {
    values.emplace_back(
        entry.path, entry.dtype ? tensor_number(ckpt::read_whole(source, entry)[0].item<int64_t>())
                                : source.read_object(entry));
  }
  return ckpt::make_tree(values);
}

std::set<std::string> names_of(const StateDict& state) {
  std::set<std::string> names;
  for (const ckpt::StateTensor& tensor : state.tensors) {
    names.insert(tensor.name);
  }
  for (const ckpt::StateObject& object : state.objects) {
    names.insert(object.name);
  }
  return names;
}

TEST_F(ChecklistPln, PLN8_NestedStatesComeBackAsTheyWere) {
  const PythonValue tree = PythonDict{
      {{"number", 3},
       {"list", PythonList{{1, PythonList{{2, "three"}}}}},
       {"pair", PythonTuple{{0.9, 0.999}}},
       {"deep", PythonList{{7, PythonList{{"text", PythonList{{tensor_number(1), true}}}},
                            tensor_number(2)}}},
       {"maps", PythonList{{PythonDict{{{"a", 1}}}, PythonDict{{{"b", tensor_number(3)}}}}}}}};
  const StateDict state = state_of_leaves(tree);
  EXPECT_EQ(names_of(state),
            (std::set<std::string>{"number", "list", "pair", "deep.0", "deep.1.0", "deep.1.1.0",
                                   "deep.1.1.1", "deep.2", "maps.0.a", "maps.1.b"}));
  save("run", 2, [&](int /*rank*/, int /*world*/) { return state; });
  // In another order: the tensors come first in the directory.
  const PythonValue read = tree_of(DcpSource(path("run")));
  for (const ckpt::PythonItem& item : tree.as<PythonDict>()->items) {
    const PythonValue* found = ckpt::find(read, *item.key.as<std::string>());
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(*found, item.value) << *item.key.as<std::string>();
  }
}

TEST_F(ChecklistPln, PLN9_ListsAreEnteredWhereATensorOrAMapIsInside) {
  const PythonValue tree = PythonDict{
      {{"k0", PythonList{{1}}},
       {"k2",
        PythonList{{tensor_number(0), 99, PythonList{{PythonDict{{{"k3", tensor_number(1)}}}}}}}},
       {"k3", PythonList{{"x", 99, PythonList{{PythonDict{{{"k3", "y"}}}}}}}}}};
  std::vector<std::string> names;
  std::vector<StatePath> paths;
  std::vector<std::pair<StatePath, PythonValue>> values;
  for (const ckpt::TreeLeaf& leaf : ckpt::flatten_tree(tree)) {
    names.push_back(ckpt::name_of(leaf.path));
    paths.push_back(leaf.path);
    values.emplace_back(leaf.path, *leaf.value);
  }
  const int64_t zero = 0;
  const int64_t one = 1;
  const int64_t two = 2;
  EXPECT_EQ(names, (std::vector<std::string>{"k0", "k2.0", "k2.1", "k2.2.0.k3", "k3.0", "k3.1",
                                             "k3.2.0.k3"}));
  EXPECT_EQ(paths, (std::vector<StatePath>{{"k0"},
                                           {"k2", zero},
                                           {"k2", one},
                                           {"k2", two, zero, "k3"},
                                           {"k3", zero},
                                           {"k3", one},
                                           {"k3", two, zero, "k3"}}));
  EXPECT_EQ(ckpt::make_tree(values), tree);
}

}  // namespace
}  // namespace fsdp2::checklist
