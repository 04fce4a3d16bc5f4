#include "include/fsdp2/loader.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "capi/argument.h"
#include "capi/fields.h"
#include "capi/nouns/module/tensor.h"
#include "capi/nouns/train/loader.h"
#include "capi/object.h"
#include "capi/sized_struct.h"
#include "core/comm/agreement.h"
#include "core/comm/sequence_dim.h"
#include "core/train/data/data_loader.h"
#include "core/train/data/record_file.h"
#include "core/train/data/token_file.h"

namespace fsdp2::capi {

namespace {

constexpr fsdp2_loader_options kLoaderDefaults = FSDP2_LOADER_OPTIONS_INIT;
constexpr Range kLoaderCount = {1, int64_t{1} << 31};

std::shared_ptr<LoaderObject> enter_loader(Call& call, fsdp2_loader loader) {
  std::shared_ptr<LoaderObject> object = pin(loader);
  call.about(object->mesh);
  call.occupy(object->busy);
  return object;
}

}  // namespace

// clang-format off
template <>
inline constexpr auto kFields<fsdp2_loader_options> = std::tuple(
    Field("format", &fsdp2_loader_options::format, Range{FSDP2_TOKENS_AUTO, FSDP2_TOKENS_RECORDS}),
    Field("order", &fsdp2_loader_options::order, Range{FSDP2_ORDER_SEQUENTIAL, FSDP2_ORDER_SHUFFLED}),
    Field("accumulate", &fsdp2_loader_options::accumulate, kLoaderCount),
    Field("sequence_length", &fsdp2_loader_options::sequence_length, kLoaderCount),
    Field("global_batch", &fsdp2_loader_options::global_batch, kLoaderCount),
    Field("vocab_size", &fsdp2_loader_options::vocab_size, Anything()),
    Field("seed", &fsdp2_loader_options::seed, Anything()),
    Field("cut_long_records", &fsdp2_loader_options::cut_long_records, Flag()),
    Field("skip_bad_records", &fsdp2_loader_options::skip_bad_records, Flag()));
// clang-format on

namespace {

train::DataLoaderOptions loader_options(const fsdp2_loader_options& options, const Mesh& mesh) {
  train::DataLoaderOptions out;
  const DataShare share = data_share(mesh);
  out.rank = share.rank;
  out.world_size = share.ranks;
  out.accumulation_steps = options.accumulate;
  out.sequence_length = options.sequence_length;
  out.batch_size =
      train::micro_batch_size(options.global_batch, out.world_size, out.accumulation_steps);
  out.order =
      options.order == FSDP2_ORDER_SHUFFLED ? train::DataOrder::kShuffle : train::DataOrder::kFile;
  out.seed = options.seed;
  return out;
}

std::shared_ptr<const train::WindowSource> open_data(const std::string& path,
                                                     const fsdp2_loader_options& options) {
  if (options.format == FSDP2_TOKENS_RECORDS) {
    train::RecordRules rules;
    rules.cut_long = options.cut_long_records != 0;
    rules.skip_bad = options.skip_bad_records != 0;
    return std::make_shared<const train::RecordFile>(path, options.vocab_size,
                                                     options.sequence_length, rules);
  }
  return std::make_shared<const train::TokenFile>(path, options.vocab_size,
                                                  options.format == FSDP2_TOKENS_BYTES
                                                      ? train::TokenFormat::kBytes
                                                      : train::TokenFormat::kTokens);
}

uint64_t open_loader(Call& call, fsdp2_mesh mesh, const char* path,
                     const fsdp2_loader_options* given, const fsdp2_loader* out) {
  const std::shared_ptr<MeshObject> object = pin(mesh);
  enter(call, *object);
  std::shared_ptr<LoaderObject> loader;
  agree(object->mesh->team(), "fsdp2_loader_open", [&] {
    check_not_null(out, "out");
    check_not_null(given, "options");
    const fsdp2_loader_options options = read_options(given, kLoaderDefaults);
    const train::DataLoaderOptions place = loader_options(options, *object->mesh);
    const auto data = open_data(read_path(path, "path"), options);
    loader.reset(new LoaderObject{object->mesh, train::DataLoader(data, place)});
    return text_of(options) + data->extent();
  });
  return give(Kind::kLoader, std::move(loader));
}

void next_batch(LoaderObject& object, fsdp2_tensor* tokens, fsdp2_tensor* labels) {
  check_not_null(tokens, "tokens");
  check_not_null(labels, "labels");
  const train::TokenBatch batch = object.loader.next();
  GivenTensors given;
  given.give(batch.inputs);
  given.give(batch.labels);
  object.positions = batch.positions;
  const std::vector<fsdp2_tensor> handles = given.keep();
  *tokens = handles[0];
  *labels = handles[1];
}

// A copy, which is the caller's to change.
void get_positions(const LoaderObject& object, fsdp2_tensor* positions) {
  check_not_null(positions, "positions");
  FSDP2_CHECK(object.positions.defined(), Code::kWrongState,
              "there is no batch yet: fsdp2_loader_next comes first");
  *positions = give_tensor(object.positions.clone(at::MemoryFormat::Contiguous));
}

}  // namespace

}  // namespace fsdp2::capi

using fsdp2::capi::Call;
using fsdp2::capi::guard;
namespace capi = fsdp2::capi;

fsdp2_status fsdp2_loader_options_init(fsdp2_loader_options* options, size_t struct_size) {
  return guard(__func__, [&](Call&) {
    capi::init_struct(options, struct_size, capi::kLoaderDefaults, "options");
  });
}

fsdp2_status fsdp2_loader_open(fsdp2_mesh mesh, const char* path,
                               const fsdp2_loader_options* options, fsdp2_loader* out) {
  return guard(__func__,
               [&](Call& call) { out->id = capi::open_loader(call, mesh, path, options, out); });
}

fsdp2_status fsdp2_loader_next(fsdp2_loader loader, fsdp2_tensor* tokens, fsdp2_tensor* labels) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::next_batch(*object, tokens, labels);
  });
}

fsdp2_status fsdp2_loader_get_positions(fsdp2_loader loader, fsdp2_tensor* positions) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::get_positions(*object, positions);
  });
}

fsdp2_status fsdp2_loader_get_position(fsdp2_loader loader, int64_t* step) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::check_not_null(step, "step");
    *step = object->loader.steps();
  });
}

fsdp2_status fsdp2_loader_set_position(fsdp2_loader loader, int64_t step) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    const int64_t accumulate = object->loader.options().accumulation_steps;
    capi::check_integer(step, 0, std::numeric_limits<int64_t>::max() / accumulate, "step");
    object->loader.seek_step(step);
  });
}

fsdp2_status fsdp2_loader_destroy(fsdp2_loader loader) {
  return capi::destroy(__func__, capi::Kind::kLoader, loader.id);
}

fsdp2_status fsdp2_loader_duplicate(fsdp2_loader loader, fsdp2_loader* out) {
  return capi::duplicate(__func__, capi::Kind::kLoader, loader, out);
}
