// Writes the seeds that are no text: ./bazelw run //tests/fuzz:make_seeds -- $PWD/tests/fuzz/seeds
//
// One good file of each format, made by our own writers, and the attacks that the tests in
// tests/core/ckpt know, for the fuzzers to start from.
#include <ATen/ATen.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "core/ckpt/bytes/checksum.h"
#include "core/ckpt/dcp/item_file.h"
#include "core/ckpt/dcp/metadata.h"
#include "core/ckpt/pickle/writer.h"
#include "core/ckpt/torch/archive.h"
#include "core/ckpt/torch/pth_source.h"
#include "tests/core/ckpt/safetensors/safetensors_fixture.h"
#include "tests/core/ckpt/torch/zip_fixture.h"
#include "tests/core/exported/program_fixture.h"

namespace fsdp2::ckpt {
namespace {

using namespace std::string_literals;  // texts with zeros in them

using Seeds = std::vector<std::pair<std::string, std::string>>;  // name, bytes

const std::string kCallsAProgram =
    "\x80\x02"
    "cos\nsystem\nX\x04\0\0\0true\x85R."s;

// One list of ten, ten times one above the other: 10^10 values.
std::string list_of_lists() {
  std::string lists = "\x80\x02(]q\0(NNNNNNNNNNe"s;
  for (char level = 0; level < 9; ++level) {
    lists += std::string("]q") + static_cast<char>(level + 1) + "(";
    for (int i = 0; i < 10; ++i) {
      lists += std::string("h") + level;
    }
    lists += "e";
  }
  return lists + "t.";
}

Seeds pickles() {
  const PythonValue values = PythonDict{{
      {"none", {}},
      {"numbers", PythonTuple{{true, 255, 65536, -1, INT64_MAX, 0.1}}},
      {"text", PythonList{{"tiny", PythonBytes{"\x00\x7F\x80\xFF"s}}}},
      {"set", PythonSet{{1, "a"}}},
      {PythonTuple{{1, "a"}}, PythonObject{"torch.device", PythonObject::Form::kCall, {"cpu"}, {}}},
      {"dtype", PythonObject{"torch.bfloat16", PythonObject::Form::kName, {}, {}}},
      {"tensor", describe_tensor(0, at::kBFloat16, {2, 3})},
      {"float8", describe_tensor(1, at::kFloat8_e4m3fn, {4})},
  }};
  return {
      {"values", write_pickle(values)},
      {"protocol_4",
       "\x80\x04\x95\x0c\0\0\0\0\0\0\0}\x94\x8c\x01"
       "a\x94]\x94K\x01"
       "as."s},
      {"counter",
       "\x80\x02"
       "ccollections\nCounter\n}X\x01\0\0\0aK\x01s\x85R."s},
      {"os_system", kCallsAProgram},
      {"nested", "\x80\x02" + std::string(1000, ']') + std::string(999, 'a') + "."},
      {"inside_itself", "\x80\x02]q\0h\0a."s},
      {"list_of_lists", list_of_lists()},
      {"huge_text", "\x80\x04\x8d\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF."},
      {"huge_memo", "\x80\x02Nr\xFF\xFF\xFF\xFF."},
  };
}

// .metadata and the data file, of a tensor in two chunks and an object.
std::string dcp_directory(const std::string& file_name, int64_t second_row) {
  std::string data;
  std::vector<DcpStorage> places;
  const ByteSink sink = [&](const void* bytes, size_t count) {
    data.append(static_cast<const char*>(bytes), count);
  };
  const auto placed = [&](int64_t bytes) {
    places.push_back({"__0_0.distcp", static_cast<int64_t>(data.size()) - bytes, bytes, {}});
  };
  placed(write_tensor_item(sink, at::ones({2, 3})));
  placed(write_tensor_item(sink, at::zeros({1, 3})));
  placed(write_object_item(sink, PythonDict{{{"step", 3}}}));
  DcpMetadata metadata;
  metadata.add({"model.w",
                {"model", "w"},
                ChunkedTensor{at::kFloat, {3, 3}, {{{0, 0}, {2, 3}}, {{2, 0}, {1, 3}}}},
                {places[0], places[1]}});
  metadata.add({"state", {"state"}, {}, {places[2]}});
  std::string described = encode_dcp_metadata(metadata);
  const auto replace_all = [&](const std::string& from, const std::string& to) {
    for (size_t at = described.find(from); at != std::string::npos;
         at = described.find(from, at + to.size())) {
      described.replace(at, from.size(), to);
    }
  };
  replace_all("\x0c\0\0\0__0_0.distcp"s, number_bytes(file_name.size(), 4) + file_name);
  replace_all("(K\x02K\0t"s, "(K" + number_bytes(static_cast<uint64_t>(second_row), 1) + "K\0t"s);
  return described + data;
}

Seeds dcp_directories() {
  return {
      {"two_chunks", dcp_directory("__0_0.distcp", 2)},
      {"chunks_overlap", dcp_directory("__0_0.distcp", 1)},
      {"file_outside", dcp_directory("../__0_0.distcp", 2)},
      {"file_of_two_lines", dcp_directory("a\nb", 2)},
      {"os_system", kCallsAProgram},
  };
}

Seeds safetensors() {
  const auto one = [](const std::string& shape, const std::string& range) {
    return safetensors_text(
        R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + range + "}}",
        std::string(16, '\1'));
  };
  return {
      {"two_tensors",
       safetensors_text(R"({"__metadata__":{"format":"pt"},)"
                        R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
                        R"("b":{"dtype":"BF16","shape":[],"data_offsets":[16,18]}} )",
                        std::string(18, '\1'))},
      {"shape_overflows", one("[4294967296,4294967296]", "[0,16]")},
      {"range_beyond", one("[4]", "[16,9223372036854775807]")},
      {"negative", one("[-4]", "[0,16]")},
      {"nested", safetensors_text(R"({"a":)" + std::string(1000, '['), "")},
      {"huge_header", little_endian(uint64_t{1} << 62) + "{}"},
  };
}

Seeds zips() {
  const StoredTensor tensor = describe_tensor(0, at::kFloat, {2, 2});
  StoredTensor expanded = tensor;
  expanded.shape = {int64_t{1} << 20, int64_t{1} << 20};
  expanded.stride = {0, 0};
  // Without checksums, so that changes get past them.
  const auto zip = [](const std::string& pickle, const ZipEntry& data, const ZipEnd& end = {}) {
    std::string text = zip_text({{"x/data.pkl", pickle}, data, {"x/version", "3\n"}}, end);
    clear_checksums(text);
    return text;
  };
  const ZipEntry data{"x/data/0", std::string(16, '\1')};
  const auto changed = [&](const auto& change) {
    ZipEntry entry = data;
    change(entry);
    return zip(write_pickle(tensor), entry);
  };
  return {
      {"torch_save", write_torch_archive(PythonDict{{{"a", tensor}}}, {at::ones({2, 2})})},
      {"plain", zip(write_pickle(PythonDict{{{"a", tensor}}}), data)},
      {"os_system", zip(kCallsAProgram, data)},
      {"expanded", zip(write_pickle(expanded), data)},
      {"bomb", changed([](ZipEntry& entry) { entry.method = 8, entry.listed_bytes = INT32_MAX; })},
      {"entry_beyond", changed([](ZipEntry& entry) { entry.flags = 8, entry.listed_bytes = 99; })},
      {"overlap", changed([](ZipEntry& entry) { entry.listed_offset = 0; })},
      {"outside", changed([](ZipEntry& entry) { entry.name = "../data/0"; })},
      {"many_entries", zip(write_pickle(tensor), data, {0xFFFF, -1, -1})},
  };
}

// Files of two ranks; see readers.h.
std::string two_files(const std::string& first, const std::string& second) {
  return number_bytes(first.size(), 4) + first + second;
}

// Rank 0 has rows 0 and 1 of a [3, 2], the other `rows` of a whole of `shape` from `begin` on.
std::string per_rank_files(int64_t begin, int64_t rows, const std::vector<int64_t>& shape) {
  const auto file = [&](int rank, int64_t from, int64_t count, const std::vector<int64_t>& whole) {
    PythonDict shards{{{"w", describe_shard(whole, {from, 0})}}};
    return write_torch_archive(PythonDict{{{"w", describe_tensor(0, at::kFloat, {count, 2})},
                                           {"lr", 0.5},
                                           {"fsdp2", describe_rank(rank, 2, std::move(shards))}}},
                               {at::ones({count, 2})});
  };
  std::string first = file(0, 0, 2, {3, 2});
  std::string second = file(1, begin, rows, shape);
  // Without checksums, so that changes get past them.
  clear_checksums(first);
  clear_checksums(second);
  return two_files(first, second);
}

Seeds per_rank() {
  return {{"two_ranks", per_rank_files(2, 1, {3, 2})},
          {"pieces_overlap", per_rank_files(1, 2, {3, 2})},
          {"hole", per_rank_files(3, 0, {3, 2})},
          {"shape_overflows", per_rank_files(2, 1, {int64_t{1} << 32, int64_t{1} << 32})},
          {"other_shapes", per_rank_files(2, 1, {4, 2})}};
}

std::string sharded_files(const std::string& offsets, const std::string& shape) {
  const auto file = [](const std::string& rows, const std::string& end, const std::string& info,
                       size_t bytes) {
    return safetensors_text(R"({"__metadata__":{"DCP_SHARDING_INFO":)" + info +
                                R"(},"w":{"dtype":"U8","shape":[)" + rows +
                                R"(,2],"data_offsets":[0,)" + end + "]}}",
                            std::string(bytes, '\1'));
  };
  const auto info = [](const std::string& begin, const std::string& whole) {
    return R"("{\"w\":{\"saved_offsets\":)" + begin + R"(,\"shape\":)" + whole + R"(}}")";
  };
  return two_files(file("2", "4", info("[0,0]", "[3,2]"), 4),
                   file("1", "2", info(offsets, shape), 2));
}

Seeds sharded() {
  return {{"two_ranks", sharded_files("[2,0]", "[3,2]")},
          {"pieces_overlap", sharded_files("[1,0]", "[3,2]")},
          {"outside", sharded_files("[9223372036854775807,0]", "[3,2]")},
          {"shape_overflows", sharded_files("[2,0]", "[4294967296,4294967296]")},
          {"fewer_dims", sharded_files("[2]", "[3]")}};
}

Seeds manifests() {
  const auto body = [](const std::string& item) {
    return R"({"block_bytes":1048576,"files":{".metadata":{"bytes":3,)"
           R"("checksum":"0123456789abcdef"},"__0_0.distcp":{"bytes":99}},"items":[)" +
           item + "]}\n";
  };
  const std::string sums = "0123456789abcdef0123456789abcdef";
  const std::string good = body(R"(["__0_0.distcp",0,1048577,"model.w [0, 0]",")" + sums + "\"]");
  return {{"one_item", good},
          {"with_its_first_line",
           "fsdp2-manifest 1 " + checksum_text(checksum(good.data(), good.size())) + "\n" + good},
          {"too_few_blocks", body(R"(["__0_0.distcp",0,2097153,"w",")" + sums + "\"]")},
          {"bytes_overflow", body(R"(["a",9223372036854775807,9223372036854775807,"w",""])")},
          {"negative", body(R"(["a",-1,-1,"w",""])")},
          {"not_whole", body(R"(["a",0,1e79,"w",""])")},
          {"other_blocks", R"({"block_bytes":1,"files":{},"items":[]})"},
          {"nested", std::string(1000, '[')}};
}

Seeds indices() {
  const auto map = [](const std::string& file) {
    return R"({"metadata":{"total_size":8},"weight_map":{"a":")" + file + "\"}}";
  };
  return {{"one_file.json", map("model-00001-of-00001.safetensors")},
          {"outside.json", map("../model.safetensors")},
          {"absolute.json", map("/etc/passwd")},
          {"no_map.json", "{}"},
          {"empty_map.json", R"({"weight_map":{}})"},
          {"twice.json", R"({"weight_map":{"a":"x","a":"y"}})"},
          {"not_text.json", R"({"weight_map":{"a":1}})"},
          {"number_overflows.json", R"({"metadata":{"total_size":1e999},"weight_map":{"a":"x"}})"},
          {"nested.json", std::string(1000, '[')}};
}

Seeds exported_programs() {
  using exported::given;
  const auto bytes = [](const exported::ProgramFile& file) {
    std::string zip = file.bytes();
    clear_checksums(zip);
    return zip;
  };
  Seeds seeds;
  exported::ProgramFile file;
  seeds.emplace_back("small", bytes(file));
  file.node(0) = exported::node_without_gradients();
  seeds.emplace_back("without_gradients", bytes(file));
  file.node(0)["inputs"][1]["arg"]["as_graph"]["graph"]["nodes"][0] = file.node(0);
  seeds.emplace_back("graph_in_graph", bytes(file));
  file = {};
  file.node(1)["inputs"].push_back(given("dtype", R"({"as_int": 999})"));
  seeds.emplace_back("enumeration", bytes(file));
  file = {};
  file.weights["config"]["part.w"]["tensor_meta"]["sizes"][0]["as_int"] = int64_t{1} << 62;
  seeds.emplace_back("size_overflows", bytes(file));
  file = {};
  file.node(0)["target"] = "torch.ops.aten.from_file.default";
  seeds.emplace_back("from_file", bytes(file));
  return seeds;
}

void write(const std::string& directory, const Seeds& seeds) {
  std::filesystem::create_directories(directory);
  for (const auto& [name, bytes] : seeds) {
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
  }
}

}  // namespace
}  // namespace fsdp2::ckpt

int main(int count, char** arguments) {
  const std::string directory = count == 2 ? arguments[1] : ".";
  fsdp2::ckpt::write(directory + "/pickle", fsdp2::ckpt::pickles());
  fsdp2::ckpt::write(directory + "/dcp", fsdp2::ckpt::dcp_directories());
  fsdp2::ckpt::write(directory + "/exported", fsdp2::ckpt::exported_programs());
  fsdp2::ckpt::write(directory + "/safetensors", fsdp2::ckpt::safetensors());
  fsdp2::ckpt::write(directory + "/zip", fsdp2::ckpt::zips());
  fsdp2::ckpt::write(directory + "/per_rank", fsdp2::ckpt::per_rank());
  fsdp2::ckpt::write(directory + "/sharded", fsdp2::ckpt::sharded());
  fsdp2::ckpt::write(directory + "/manifest", fsdp2::ckpt::manifests());
  fsdp2::ckpt::write(directory + "/index", fsdp2::ckpt::indices());
  return 0;
}
