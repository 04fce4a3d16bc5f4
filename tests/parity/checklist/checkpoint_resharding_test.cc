// Checklist, checkpoints: CKP-1 to CKP-11, CKP-13, CKP-20. What is saved on one layout is loaded on
// another. A layout is the chunks that a rank says it holds.
#include <filesystem>
#include <map>

#include "core/ckpt/dcp/dcp_source.h"
#include "tests/core/base/file_fixture.h"
#include "tests/parity/checklist/checkpoint_layout.h"

namespace fsdp2::checklist {
namespace {

using ckpt::PartFiles;
using ckpt::ShardedSaveOptions;

class ChecklistCkp : public FileTest {};

// One writer thread and two, in one file a rank and one a tensor.
std::vector<PartFiles> ways_to_write() { return {{1, false}, {2, false}, {1, true}, {2, true}}; }

StateDict state_of(const nn::Module& module) {
  StateDict state;
  for (const nn::NamedParameter& parameter : nn::named_unique_parameters(module)) {
    state.add_whole({parameter.names[0]}, parameter.tensor.detach());
  }
  return state;
}

std::shared_ptr<Sequence> small_model(uint64_t values) {
  return seed(std::make_shared<Sequence>(std::vector<ModulePtr>{
                  std::make_shared<Linear>(5, 5), std::make_shared<Linear>(5, 1),
                  std::make_shared<Embedding>(5, 10)}),
              values);
}

int64_t data_files_in(const std::string& directory) {
  int64_t count = 0;
  for (const auto& file : std::filesystem::directory_iterator(directory)) {
    count += file.path().extension() == ".distcp" ? 1 : 0;
  }
  return count;
}

at::Tensor numbers(at::IntArrayRef shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    count *= size;
  }
  return at::arange(count, at::kFloat).view(shape);
}

TEST_F(ChecklistCkp, CKP1_WriterThreadsAndFilesPerTensor) {
  run_ranks(1, [&](const WorldPtr& world) {
    const auto saved = small_model(1);
    for (const PartFiles& files : ways_to_write()) {
      ShardedSaveOptions options{path("run")};
      options.files = files;
      save_state(world, state_of(*saved), options);
      EXPECT_EQ(data_files_in(path("run")), files.file_per_item ? 5 : files.threads);
      const auto loaded = small_model(2);
      StateDict state = state_of(*loaded);
      ckpt::load_state(*world, path("run"), &state);
      for (const nn::NamedParameter& parameter : nn::named_unique_parameters(*saved)) {
        EXPECT_TRUE(find_parameter(*loaded, parameter.names[0]).equal(parameter.tensor))
            << parameter.names[0];
      }
    }
  });
}

TEST_F(ChecklistCkp, CKP2_ShardsComeBackOnTheSameLayout) {
  run_ranks(2, [&](const WorldPtr& world) {
    const Placing placing{{2}, "S"};
    const at::Tensor full = numbers({10, 3});
    for (const PartFiles& files : ways_to_write()) {
      ShardedSaveOptions options{path("run")};
      options.files = files;
      const StateDict saved = checklist::state_of(full, placing, world->rank());
      save_state(world, saved, options);
      StateDict loaded = checklist::state_of(full + 1, placing, world->rank());
      EXPECT_FALSE(loaded.tensors[0].local.equal(saved.tensors[0].local));
      ckpt::load_state(*world, path("run"), &loaded);
      EXPECT_TRUE(loaded.tensors[0].local.equal(saved.tensors[0].local));
    }
  });
}

TEST_F(ChecklistCkp, CKP3_RowsAreLoadedAsColumns) {
  run_ranks(2, [&](const WorldPtr& world) {
    const at::Tensor full = numbers({10, 20});
    save_state(world, checklist::state_of(full, {{2}, "S"}, world->rank()), {path("run")});
    const int64_t first = world->rank() * int64_t{10};
    StateDict columns;
    columns.add_tensor({"t"}, {10, 20}, {0, first}, at::zeros({10, 10}));
    ckpt::load_state(*world, path("run"), &columns);
    EXPECT_TRUE(columns.tensors[0].local.equal(full.narrow(1, first, 10)));
    // And the other way round.
    save_state(world, columns, {path("columns")});
    expect_rows_load(world, path("columns"), full, Placing{{2}, "S"}.rows_of(world->rank(), 10));
  });
}

TEST_F(ChecklistCkp, CKP4_ValuesOfTheCheckpointReplaceThoseThere) {
  run_ranks(2, [&](const WorldPtr& world) {
    StateDict saved;
    saved.add_object({"list"}, ckpt::PythonList{{1}});
    saved.add_object({"text"}, "string");
    save_state(world, saved, {path("run")});
    StateDict loaded;
    loaded.add_object({"list"}, ckpt::PythonList{{2}});
    loaded.add_object({"text"}, "other");
    ckpt::load_state(*world, path("run"), &loaded);
    EXPECT_TRUE(loaded.objects[0].value == saved.objects[0].value);
    EXPECT_TRUE(loaded.objects[1].value == saved.objects[1].value);
  });
}

// The chunks that each of two ranks holds of 32 rows.
using Layout = std::vector<std::vector<Rows>>;

std::vector<Layout> uneven_layouts() {
  return {{{{0, 16}}, {{16, 16}}},
          {{{0, 8}, {24, 8}}, {{8, 8}, {16, 8}}},
          {{{0, 8}}, {{8, 24}}},
          {{{0, 10}}, {{10, 22}}}};
}

StateDict state_of_layout(const std::string& sharded, const std::string& plain,
                          const at::Tensor& full, const std::vector<Rows>& chunks) {
  StateDict state;
  for (const Rows& rows : chunks) {
    add_chunk(&state, sharded, full, rows);
  }
  add_chunk(&state, plain, full, {0, full.size(0)});
  return state;
}

TEST_F(ChecklistCkp, CKP5_ShardedBecomesPlainAndPlainSharded) {
  run_ranks(2, [&](const WorldPtr& world) {
    const at::Tensor full = numbers({32});
    for (const Layout& layout : uneven_layouts()) {
      const std::vector<Rows>& own = layout[static_cast<size_t>(world->rank())];
      save_state(world, state_of_layout("a", "b", full, own), {path("run")});
      StateDict loaded = state_of_layout("b", "a", at::zeros_like(full), own);
      ckpt::load_state(*world, path("run"), &loaded);
      for (const ckpt::StateTensor& chunk : loaded.tensors) {
        EXPECT_TRUE(chunk.local.equal(full.narrow(0, chunk.offsets[0], chunk.local.size(0))))
            << chunk.name << " at " << chunk.offsets[0];
      }
    }
  });
}

StateDict mixed_state(int rank, int64_t factor) {
  const auto times = static_cast<double>(factor);
  StateDict state;
  add_chunk(&state, "sharded", at::arange(4, at::kFloat) * times, kFlatSharded.rows_of(rank, 4));
  add_chunk(&state, "replicated", at::arange(4, 8, at::kFloat) * times, {0, 4});
  state.add_object({"extra", "number"}, 7 * factor);
  state.add_whole({"extra", "value"}, at::full({1}, 3.5 * times));
  return state;
}

TEST_F(ChecklistCkp, CKP6_ShardedReplicatedAndExtraState) {
  run_ranks(4, [&](const WorldPtr& world) {
    const StateDict original = mixed_state(world->rank(), 1);
    save_state(world, original, {path("run")});
    StateDict state = mixed_state(world->rank(), 10);
    ckpt::load_state(*world, path("run"), &state);
    for (size_t i = 0; i < original.tensors.size(); ++i) {
      EXPECT_TRUE(state.tensors[i].local.equal(original.tensors[i].local))
          << original.tensors[i].name;
    }
    EXPECT_TRUE(state.objects[0].value == original.objects[0].value);
  });
}

TEST_F(ChecklistCkp, CKP7_ReplicatedAndShardedAreLoadedAsEachOther) {
  expect_resharding({path("run")}, numbers({4, 4}), {kFlatReplicated, kFlatSharded},
                    {kFlatReplicated, kFlatSharded});
}

TEST_F(ChecklistCkp, CKP8_FromOneMeshDimToTwo) {
  expect_resharding({path("run")}, numbers({4, 4}), {kFlatReplicated, kFlatSharded},
                    placings_on_two_dims());
}

TEST_F(ChecklistCkp, CKP9_FromTwoMeshDimsToOne) {
  expect_resharding({path("run")}, numbers({4, 4}), placings_on_two_dims(),
                    {kFlatReplicated, kFlatSharded});
}

TEST_F(ChecklistCkp, CKP10_UnevenRowsAreLoadedIntoAPlainTensor) {
  expect_resharding({path("run")}, numbers({14, 1}), {kFlatSharded}, {kFlatReplicated});
}

// The rows of a rank when rank after rank holds so many.
Rows rows_by_counts(const std::vector<int64_t>& counts, int rank) {
  Rows rows{0, counts[static_cast<size_t>(rank)]};
  for (int before = 0; before < rank; ++before) {
    rows.begin += counts[static_cast<size_t>(before)];
  }
  return rows;
}

TEST_F(ChecklistCkp, CKP11_ExplicitChunksOfAnySize) {
  run_ranks(4, [&](const WorldPtr& world) {
    const at::Tensor full = numbers({16});
    save_state(world, checklist::state_of(full, rows_by_counts({4, 3, 4, 5}, world->rank())),
               {path("run")});
    for (const auto& counts : {std::vector<int64_t>{2, 4, 6, 4}, {6, 2, 1, 7}}) {
      expect_rows_load(world, path("run"), full, rows_by_counts(counts, world->rank()));
    }
  });
}

TEST_F(ChecklistCkp, CKP13_MetadataCountsChunks) {
  run_ranks(2, [&](const WorldPtr& world) {
    const bool is_second = world->rank() == 1;
    StateDict state;
    add_chunk(&state, "sharded", numbers({10, 10}), {is_second ? 5 : 0, 5});
    add_chunk(&state, "replicated", numbers({4}), {0, 4});
    add_chunk(&state, "on rank 1", numbers({3}), {0, is_second ? 3 : 0});
    state.add_object({"list"}, ckpt::PythonList{{1, 2}});
    save_state(world, state, {path("run")});
  });
  const ckpt::DcpSource run(path("run"));
  const auto expect_chunks = [&](const char* name, const std::vector<int64_t>& shape,
                                 size_t count) {
    const ckpt::DcpEntry* entry = run.metadata().find(name);
    ASSERT_TRUE(entry != nullptr && entry->tensor) << name;
    EXPECT_EQ(entry->tensor->shape, shape) << name;
    EXPECT_EQ(entry->tensor->chunks.size(), count) << name;
  };
  expect_chunks("sharded", {10, 10}, 2);
  expect_chunks("replicated", {4}, 1);
  expect_chunks("on rank 1", {3}, 1);
  const ckpt::DcpEntry* list = run.metadata().find("list");
  ASSERT_NE(list, nullptr);
  EXPECT_FALSE(list->tensor);
}

TEST_F(ChecklistCkp, CKP20_AnEmptyStateWithoutALauncher) {
  const WorldPtr world = World::join({});
  save_state(world, {}, {path("run")});
  StateDict state;
  ckpt::load_state(*world, path("run"), &state);
  EXPECT_TRUE(state.tensors.empty() && state.objects.empty());
}

}  // namespace
}  // namespace fsdp2::checklist
