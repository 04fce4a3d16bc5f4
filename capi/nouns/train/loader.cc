#include "include/fsdp2/loader.h"

#include <limits>
#include <optional>
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
#include "core/text/tokenizer.h"
#include "core/train/data/data_loader.h"
#include "core/train/data/images/vision_rules.h"
#include "core/train/data/mixture.h"
#include "core/train/data/record_file.h"
#include "core/train/data/token_file.h"
#include "core/train/data/tokenized_text.h"

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
    Field("skip_bad_records", &fsdp2_loader_options::skip_bad_records, Flag()),
    Field("drop_last", &fsdp2_loader_options::drop_last, Flag()),
    Field("read_ahead", &fsdp2_loader_options::read_ahead, PerRank(Range{0, 1 << 10})),
    Field("tokenizer", &fsdp2_loader_options::tokenizer, Elsewhere()),
    Field("vision_model", &fsdp2_loader_options::vision_model, Elsewhere()));
// clang-format on

namespace {

train::DataOrder data_order(const fsdp2_loader_options& options) {
  return options.order == FSDP2_ORDER_SHUFFLED ? train::DataOrder::kShuffle
                                               : train::DataOrder::kFile;
}

train::DataLoaderOptions loader_options(const fsdp2_loader_options& options, const Mesh& mesh) {
  train::DataLoaderOptions out;
  const DataShare share = data_share(mesh);
  out.rank = share.rank;
  out.world_size = share.ranks;
  out.accumulation_steps = options.accumulate;
  out.sequence_length = options.sequence_length;
  out.batch_size =
      train::micro_batch_size(options.global_batch, out.world_size, out.accumulation_steps);
  out.order = data_order(options);
  out.seed = options.seed;
  out.last_step = options.drop_last != 0 ? train::LastStep::kDrop : train::LastStep::kPad;
  out.read_ahead = options.read_ahead;
  return out;
}

std::shared_ptr<const text::Tokenizer> open_tokenizer(const fsdp2_loader_options& options) {
  if (options.tokenizer == nullptr) {
    return nullptr;
  }
  FSDP2_CHECK(options.format != FSDP2_TOKENS_AUTO, Code::kInvalidArgument,
              "options.tokenizer: the file has tokens already: expected options.format "
              "FSDP2_TOKENS_BYTES or _RECORDS, or no tokenizer");
  return std::make_shared<const text::Tokenizer>(read_path(options.tokenizer, "options.tokenizer"));
}

std::optional<train::VisionRules> read_vision(const fsdp2_loader_options& options) {
  if (options.vision_model == nullptr) {
    return std::nullopt;
  }
  FSDP2_CHECK(options.format == FSDP2_TOKENS_RECORDS, Code::kInvalidArgument,
              "options.vision_model: expected options.format FSDP2_TOKENS_RECORDS: only records "
              "have images or videos");
  return train::read_vision_rules(read_path(options.vision_model, "options.vision_model"));
}

std::shared_ptr<const train::WindowSource> open_data(
    const std::string& path, const fsdp2_loader_options& options,
    const std::shared_ptr<const text::Tokenizer>& tokenizer) {
  const std::optional<train::VisionRules> vision = read_vision(options);
  if (options.format == FSDP2_TOKENS_RECORDS) {
    train::RecordRules rules;
    rules.cut_long = options.cut_long_records != 0;
    rules.skip_bad = options.skip_bad_records != 0;
    return std::make_shared<const train::RecordFile>(
        path, options.vocab_size, options.sequence_length, rules, tokenizer, vision);
  }
  if (tokenizer != nullptr) {
    return std::make_shared<const train::TokenizedText>(path, options.vocab_size, *tokenizer);
  }
  return std::make_shared<const train::TokenFile>(path, options.vocab_size,
                                                  options.format == FSDP2_TOKENS_BYTES
                                                      ? train::TokenFormat::kBytes
                                                      : train::TokenFormat::kTokens);
}

std::shared_ptr<const train::WindowSource> open_mixture(const std::vector<std::string>& paths,
                                                        const double* weights,
                                                        const fsdp2_loader_options& options) {
  const auto tokenizer = open_tokenizer(options);
  std::vector<train::MixturePart> parts;
  for (size_t i = 0; i < paths.size(); ++i) {
    parts.push_back({open_data(paths[i], options, tokenizer), weights[i]});
  }
  return std::make_shared<const train::Mixture>(std::move(parts), options.sequence_length,
                                                data_order(options), options.seed);
}

// `open` gives the data, from the options.
template <typename Open>
uint64_t open_loader(Call& call, fsdp2_mesh mesh, const fsdp2_loader_options* given,
                     const fsdp2_loader* out, const Open& open) {
  const std::shared_ptr<MeshObject> object = pin(mesh);
  enter(call, *object);
  std::shared_ptr<LoaderObject> loader;
  agree(object->mesh->team(), call.function(), [&] {
    check_not_null(out, "out");
    check_not_null(given, "options");
    const fsdp2_loader_options options = read_options(given, kLoaderDefaults);
    const train::DataLoaderOptions place = loader_options(options, *object->mesh);
    const std::shared_ptr<const train::WindowSource> data = open(options);
    loader.reset(new LoaderObject{object->mesh, train::DataLoader(data, place)});
    return text_of(options) + data->extent();
  });
  return give(Kind::kLoader, std::move(loader));
}

void next_batch(LoaderObject& object, fsdp2_tensor* tokens, fsdp2_tensor* labels) {
  check_not_null(tokens, "tokens");
  check_not_null(labels, "labels");
  train::TokenBatch batch = object.loader.next();
  GivenTensors given;
  given.give(batch.inputs);
  given.give(batch.labels);
  batch.inputs = batch.labels = at::Tensor();
  object.batch = std::move(batch);
  const std::vector<fsdp2_tensor> handles = given.keep();
  *tokens = handles[0];
  *labels = handles[1];
}

void check_has_batch(const LoaderObject& object) {
  FSDP2_CHECK(object.batch.positions.defined(), Code::kWrongState,
              "there is no batch yet: fsdp2_loader_next comes first");
}

// Which is the caller's to change.
at::Tensor copy(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.clone(at::MemoryFormat::Contiguous) : tensor;
}

void get_positions(const LoaderObject& object, fsdp2_tensor* positions) {
  check_not_null(positions, "positions");
  check_has_batch(object);
  *positions = give_tensor(copy(object.batch.positions));
}

void get_boundaries(const LoaderObject& object, fsdp2_tensor* boundaries) {
  check_not_null(boundaries, "boundaries");
  check_has_batch(object);
  *boundaries = give_tensor(train::boundaries_of(object.batch.positions));
}

void get_images(const LoaderObject& object, fsdp2_tensor* pixels, fsdp2_tensor* grids) {
  check_not_null(pixels, "pixel_values");
  check_not_null(grids, "image_grid_thw");
  check_has_batch(object);
  give_tensors({{copy(object.batch.pixels), pixels}, {copy(object.batch.grids), grids}});
}

void get_videos(const LoaderObject& object, fsdp2_tensor* pixels, fsdp2_tensor* grids,
                fsdp2_tensor* seconds) {
  check_not_null(pixels, "pixel_values_videos");
  check_not_null(grids, "video_grid_thw");
  check_not_null(seconds, "second_per_grid_ts");
  check_has_batch(object);
  give_tensors({{copy(object.batch.video_pixels), pixels},
                {copy(object.batch.video_grids), grids},
                {copy(object.batch.seconds_per_grid), seconds}});
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
  return guard(__func__, [&](Call& call) {
    out->id = capi::open_loader(call, mesh, options, out, [&](const fsdp2_loader_options& own) {
      return capi::open_data(capi::read_path(path, "path"), own, capi::open_tokenizer(own));
    });
  });
}

fsdp2_status fsdp2_loader_open_mixture(fsdp2_mesh mesh, const char* const* paths,
                                       const double* weights, size_t n_paths,
                                       const fsdp2_loader_options* options, fsdp2_loader* out) {
  return guard(__func__, [&](Call& call) {
    out->id = capi::open_loader(call, mesh, options, out, [&](const fsdp2_loader_options& own) {
      capi::check_array(weights, n_paths, "weights");
      const auto files = capi::read_texts(paths, n_paths, capi::kMaxPath, "paths");
      return capi::open_mixture(files, weights, own);
    });
  });
}

fsdp2_status fsdp2_loader_get_info(fsdp2_loader loader, fsdp2_loader_info* out) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::check_out_struct(out, "out");
    fsdp2_loader_info info{};
    info.n_windows = object->loader.window_count();
    info.steps_per_epoch = object->loader.steps_per_epoch();
    info.n_images = object->loader.image_count();
    info.n_videos = object->loader.video_count();
    info.n_video_inputs = object->loader.video_inputs();
    capi::fill_struct(out, info);
  });
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

fsdp2_status fsdp2_loader_get_boundaries(fsdp2_loader loader, fsdp2_tensor* boundaries) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::get_boundaries(*object, boundaries);
  });
}

fsdp2_status fsdp2_loader_get_images(fsdp2_loader loader, fsdp2_tensor* pixel_values,
                                     fsdp2_tensor* image_grid_thw) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::get_images(*object, pixel_values, image_grid_thw);
  });
}

fsdp2_status fsdp2_loader_get_videos(fsdp2_loader loader, fsdp2_tensor* pixel_values_videos,
                                     fsdp2_tensor* video_grid_thw,
                                     fsdp2_tensor* second_per_grid_ts) {
  return guard(__func__, [&](Call& call) {
    const auto object = capi::enter_loader(call, loader);
    capi::get_videos(*object, pixel_values_videos, video_grid_thw, second_per_grid_ts);
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
