#include "tests/fuzz/abi/options.h"

#include <atomic>
#include <cstring>

#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/abi/values.h"

namespace fsdp2::fuzz {

namespace {

constexpr size_t kStructRoom = 8192;  // beyond any struct_size that the library follows

const abi_struct& struct_of(const std::string& name) {
  for (size_t i = 0; i < abi_n_structs; ++i) {
    if (name == abi_structs[i].name) {
      return abi_structs[i];
    }
  }
  report("no struct " + name);
}

// The size, and sometimes one of an older or newer caller, or of none.
void set_struct_size(const abi_struct& type, unsigned char* memory, Random& random, bool wrong) {
  auto size = static_cast<uint32_t>(type.size);
  if (wrong && random.one_in(4)) {
    static const std::vector<int64_t> kSizes = {0, 1, 8, 4096, 4097, UINT32_MAX};
    size = random.one_in(2) ? size + 8 : static_cast<uint32_t>(random.of(kSizes));
    memory[type.size + 3] = random.one_in(3) ? 1 : 0;
  }
  std::memcpy(memory, &size, sizeof(size));
}

// An array field, and the count behind it.
void set_array(const abi_struct& type, int index, void* array, size_t count,
               unsigned char* memory) {
  std::memcpy(memory + type.fields[index].offset, &array, sizeof(array));
  for (int i = index + 1; i < type.n_fields && i < index + 2; ++i) {
    if (is_count(type.fields[i])) {
      write_number(type.fields[i].type, static_cast<double>(count), memory + type.fields[i].offset);
    }
  }
}

void set_field(Call& call, const abi_struct& type, int index, Source source, bool wrong,
               unsigned char* memory) {
  const abi_variable& field = type.fields[index];
  unsigned char* to = memory + field.offset;
  Random& random = source.random;
  const auto set_pointer = [&](const void* pointer) { std::memcpy(to, &pointer, sizeof(pointer)); };
  if (field.role == ABI_NUMBER && wrong) {
    const abi_argument value = bad_number(field.type, random);
    std::memcpy(to, &value, field.size);
  } else if (field.role == ABI_NUMBER && !is_count(field)) {
    write_number(field.type, good_number(field.name, random), to);
  } else if (field.role == ABI_TEXT) {
    set_pointer(call.keep(wrong ? bad_text(random) : good_text(type.name, field.name, random)));
  } else if (field.role == ABI_TEXTS) {
    const size_t count = 1 + random.below(2);
    set_array(type, index, make_texts(call, type.name, field.name, count, random, wrong), count,
              memory);
  } else if (field.role == ABI_INPUT) {
    set_array(type, index, call.array<int64_t>({1, 2, 1, 2, 0, 3}), 1 + random.below(3), memory);
  } else if (field.role == ABI_HANDLES && wrong) {
    set_array(type, index, call.array<uint64_t>({0, 1, 0}), 1 + random.below(8), memory);
  } else if (field.role == ABI_CALLBACK) {
    const auto function = callback_of(field.type).function;
    std::memcpy(to, &function, sizeof(function));
  }
}

// Where this rank is: alone, or in a job that is only imagined. Nothing that waits for long, uses
// the network or makes a mesh of many.
void place(fsdp2_mesh_options& options, Call& call, Source source, bool wrong) {
  static std::atomic<int> next{0};
  Random& random = source.random;
  const bool fake = random.one_in(2);
  const std::string own = "thread://alone-" + std::to_string(next++);
  options.backend = fake ? FSDP2_BACKEND_FAKE : FSDP2_BACKEND_THREAD;
  options.rendezvous = fake ? nullptr : call.keep(own);
  options.world_size = fake ? static_cast<int32_t>(1 + random.below(4)) : 1;
  options.rank = fake ? static_cast<int32_t>(random.below(options.world_size)) : 0;
  if (wrong && random.one_in(3)) {
    options.world_size = random.one_in(2) ? -2 : 2;
  }
  options.timeout_ms = wrong && random.one_in(4) ? -1 : source.timeout_ms;
}

// The options of a mesh name many things that have to fit each other.
void shape_mesh(fsdp2_mesh_options& options, Call& call, Source source, bool wrong) {
  Random& random = source.random;
  options.shape = nullptr;
  options.names = nullptr;
  options.n_dims = 0;
  options.ranks = nullptr;
  options.n_ranks = 0;
  if (random.one_in(3)) {
    options.fsdp_size = 0;
    options.ulysses_size = 0;
    options.n_dims = static_cast<int32_t>(1 + random.below(3));
    options.shape = call.array<int64_t>(random.one_in(2) ? std::vector<int64_t>{-1, 1, 1}
                                                         : std::vector<int64_t>{1, -1, 2});
    if (random.one_in(2)) {
      static const std::vector<std::string> kNames = {"a", "b", "fsdp"};
      auto** names = reinterpret_cast<const char**>(call.memory(kElements * sizeof(char*)));
      for (size_t i = 0; i < kNames.size(); ++i) {
        names[i] = kNames[i].c_str();
      }
      options.names = names;
    }
  }
  if (wrong && random.one_in(4)) {
    options.n_dims = static_cast<int32_t>(random.below(20)) - 2;
  }
  if (wrong && random.one_in(4)) {
    options.n_ranks = random.one_in(2) ? 2 : SIZE_MAX;
    options.ranks = random.one_in(2) ? nullptr : call.array<int32_t>({0, 1, -1});
  }
}

void fill_mesh_options(Call& call, unsigned char* memory, Source source, bool wrong) {
  auto& options = *reinterpret_cast<fsdp2_mesh_options*>(memory);
  shape_mesh(options, call, source, wrong);
  const std::string name = call.function->name;
  if (name == "fsdp2_mesh_create" || (wrong && source.random.one_in(4))) {
    place(options, call, source, wrong);
  } else {
    const uint32_t size = options.struct_size;
    const fsdp2_mesh_options shape = options;
    options = FSDP2_MESH_OPTIONS_INIT;
    options.struct_size = size;
    options.n_dims = shape.n_dims;
    options.shape = shape.shape;
    options.names = shape.names;
    options.ranks = shape.ranks;
    options.n_ranks = shape.n_ranks;
    options.fsdp_size = shape.n_dims == 0 ? shape.fsdp_size : 0;
    options.ulysses_size = shape.n_dims == 0 ? shape.ulysses_size : 0;
  }
}

// What would be the caller's own mistake, or more than a test should ask for.
void keep_in_bounds(const abi_struct& type, unsigned char* memory, Random& random) {
  const std::string name = type.name;
  if (name == "fsdp2_generate_options") {
    auto& options = *reinterpret_cast<fsdp2_generate_options*>(memory);
    const bool has_room = options.max_new_tokens <= 16 || options.max_new_tokens > (1 << 24);
    options.max_new_tokens = has_room ? options.max_new_tokens : 8;
  } else if (name == "fsdp2_loader_options") {
    auto& options = *reinterpret_cast<fsdp2_loader_options*>(memory);
    const fsdp2_loader_options own = FSDP2_LOADER_OPTIONS_INIT;
    if (options.sequence_length == own.sequence_length && !random.one_in(8)) {
      options.sequence_length = 4;
      options.global_batch = 4;
      options.vocab_size = 32;
    }
  }
}

}  // namespace

const char** make_texts(Call& call, const std::string& owner, const std::string& name, size_t count,
                        Random& random, bool wrong) {
  auto** texts = reinterpret_cast<const char**>(call.memory(kElements * sizeof(char*)));
  for (size_t i = 0; i < std::max<size_t>(count, 4); ++i) {
    texts[i] =
        call.keep(wrong && random.one_in(3) ? bad_text(random) : good_text(owner, name, random));
  }
  if (wrong && random.one_in(4)) {
    texts[random.below(2)] = nullptr;
  }
  return texts;
}

unsigned char* make_options(Call& call, const abi_variable& parameter, Source source, bool wrong,
                            std::string& text) {
  const abi_struct& type = struct_of(parameter.type);
  Random& random = source.random;
  unsigned char* memory = call.memory(kStructRoom);
  if (type.defaults != nullptr) {
    std::memcpy(memory, type.defaults, type.size);
  }
  const bool plain = random.one_in(3);
  for (int i = 0; !plain && i < type.n_fields; ++i) {
    if (std::string(type.fields[i].name) != "struct_size" && random.one_in(8)) {
      set_field(call, type, i, source, wrong && random.one_in(2), memory);
    }
  }
  set_struct_size(type, memory, random, wrong);
  if (std::string(type.name) == "fsdp2_mesh_options") {
    fill_mesh_options(call, memory, source, wrong);
  }
  keep_in_bounds(type, memory, random);
  for (int i = 0; i < type.n_fields; ++i) {
    const abi_variable& field = type.fields[i];
    const auto* own = static_cast<const unsigned char*>(type.defaults);
    if (own == nullptr || std::memcmp(own + field.offset, memory + field.offset, field.size) != 0) {
      abi_argument number{};
      std::memcpy(&number, memory + field.offset, std::min(field.size, sizeof(number)));
      text += std::string(text.empty() ? "" : ", ") + field.name + "=" +
              (field.role == ABI_NUMBER ? text_of_number(field, number) : "...");
    }
  }
  return memory;
}

const abi_callback& callback_of(const std::string& type) {
  for (size_t i = 0; i < abi_n_callbacks; ++i) {
    if (type == abi_callbacks[i].name) {
      return abi_callbacks[i];
    }
  }
  report("no callback " + type);
}

}  // namespace fsdp2::fuzz
