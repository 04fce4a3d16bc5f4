#include "tests/fuzz/abi/arguments.h"

#include <cmath>
#include <cstring>

#include "tests/fuzz/abi/foreign_tensor.h"
#include "tests/fuzz/abi/history.h"
#include "tests/fuzz/abi/options.h"
#include "tests/fuzz/abi/values.h"

namespace fsdp2::fuzz {

namespace {

std::string hexadecimal(uint64_t id) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(id));
  return text;
}

class Maker {
 public:
  Maker(Call& call, Source source, size_t wrong) : call_(call), source_(source), wrong_(wrong) {}

  void make() {
    std::vector<std::string> texts(call_.arguments.size());
    for (int i = 0; i < call_.function->n_parameters; ++i) {
      call_.arguments[i] = argument(i, texts[i]);
    }
    make_bytes_fit(texts);
    keep_log_silent();
    call_.text = std::string(call_.function->name) + "(";
    for (const std::string& text : texts) {
      call_.text += (&text == texts.data() ? "" : ", ") + text;
    }
    call_.text += ")";
  }

 private:
  Random& random() { return source_.random; }
  bool is_wrong() { return wrong_ != 0 && random().one_in(wrong_); }
  const abi_variable& parameter(int index) const { return call_.function->parameters[index]; }
  // The argument of that name; null if there is none.
  abi_argument* named(const char* name, int* index = nullptr) {
    for (int i = 0; i < call_.function->n_parameters; ++i) {
      if (std::strcmp(parameter(i).name, name) == 0) {
        if (index != nullptr) {
          *index = i;
        }
        return &call_.arguments[i];
      }
    }
    return nullptr;
  }

  abi_argument argument(int index, std::string& text) {
    const abi_variable& of = parameter(index);
    abi_argument made{};
    if (of.role == ABI_NUMBER) {
      return number(index, text);
    }
    if (of.role == ABI_HANDLE) {
      made.id = handle(of);
      text = hexadecimal(made.id);
      return made;
    }
    if (of.role == ABI_CALLBACK) {
      return callback(of, text);
    }
    if (is_null(index)) {
      count_ = std::strcmp(of.name, "offsets") == 0 ? count_ : 0;
      text = "NULL";
      return made;
    }
    made.pointer = pointer(index, text);
    return made;
  }

  bool is_null(int index) {
    const abi_variable& of = parameter(index);
    const bool has_cap = index + 1 < call_.function->n_parameters &&
                         std::strcmp(parameter(index + 1).name, "cap") == 0;
    if (of.role == ABI_USER_DATA && call_.arguments[index - 1].function == nullptr) {
      return !is_wrong();
    }
    if (std::strcmp(of.name, "offsets") == 0 && !is_wrong()) {  // go with the shape before them
      return call_.arguments[index - 1].pointer == nullptr;
    }
    return (of.is_optional && random().one_in(3)) || (has_cap && random().one_in(8)) ||
           (is_wrong() && random().one_in(3));
  }

  // ---- what fits together

  // The bytes that a dtype and a shape need, or that a tensor has.
  void make_bytes_fit(std::vector<std::string>& texts) {
    int index = 0;
    abi_argument* n_bytes = named("n_bytes", &index);
    if (n_bytes == nullptr || n_bytes->as_size_t > kRoom || is_wrong()) {
      return;
    }
    if (const abi_argument* dtype = named("dtype")) {
      static const size_t kSizes[] = {0, 4, 8, 2, 2, 8, 4, 2, 1, 1, 1};
      const int32_t number = dtype->as_int32_t;
      n_bytes->as_size_t = shape_numel_ * (number > 0 && number <= 10 ? kSizes[number] : 0);
    } else if (const abi_argument* tensor = named("tensor")) {
      fsdp2_tensor_info info;
      info.struct_size = sizeof(info);
      const bool is_there = fsdp2_tensor_get_info({tensor->id}, &info) == FSDP2_OK;
      n_bytes->as_size_t = is_there && static_cast<size_t>(info.n_bytes) <= kRoom
                               ? static_cast<size_t>(info.n_bytes)
                               : 0;
    }
    texts[index] = std::to_string(n_bytes->as_size_t);
  }

  // Without a function, the library's messages would go to standard error.
  void keep_log_silent() {
    if (abi_argument* level = named("min_level"); level != nullptr) {
      if (call_.arguments[1].function == nullptr) {
        level->as_int32_t = FSDP2_LOG_OFF;
      }
    }
  }

  // ---- numbers

  abi_argument number(int index, std::string& text) {
    const abi_variable& of = parameter(index);
    const std::string name = of.name;
    abi_argument made{};
    if (name == "cap") {
      made = room(index);
    } else if (name == "n_bytes") {
      made.as_size_t = random().below(9) * 8;
    } else if (name == "struct_size") {
      made.as_size_t = options_size_;
    } else if (is_count(of)) {
      made = number_as(of.type, static_cast<double>(count_));
    } else {
      made = number_as(of.type, good_number(name, random()));
    }
    if (is_wrong() && !(name == "cap" && is_text_buffer_)) {
      made = bad_number(of.type, random());
    }
    text = text_of_number(of, made);
    return made;
  }

  // What a call may write to the outputs before it, or less.
  abi_argument room(int index) {
    abi_argument made{};
    is_text_buffer_ = std::strcmp(parameter(index - 1).type, "char") == 0;
    made.as_size_t = kRoom / std::max<size_t>(parameter(index - 1).size, 1);
    if (call_.arguments[index - 1].pointer == nullptr && !is_wrong()) {
      made.as_size_t = 0;
    } else if (random().one_in(8)) {
      made.as_size_t = random().below(4);
    }
    return made;
  }

  // ---- handles

  uint64_t handle(const abi_variable& of) {
    if (is_wrong()) {
      static const std::vector<uint64_t> kNever = {0, UINT64_MAX, 0xdeadbeef, 1};
      const size_t way = random().below(3);
      return way == 0   ? random().of(kNever)
             : way == 1 ? source_.holdings.destroyed(random())
                        : source_.holdings.one_of_any(random());
    }
    if (of.is_optional && random().one_in(2)) {
      return 0;
    }
    const uint64_t remembered = source_.holdings.remembered(of.name);
    return remembered != 0 && !random().one_in(3) ? remembered
                                                  : source_.holdings.one_of(of.type, random());
  }

  // Tokens and labels for what takes inputs of a model, losses for a backward.
  void* handles(const abi_variable& of, std::string& text) {
    count_ = random().one_in(4) ? 1 : 2;
    auto* array = call_.array<uint64_t>({});
    for (size_t i = 0; i < kElements; ++i) {
      array[i] = handle(of);
    }
    text = "{" + hexadecimal(array[0]) + ", " + hexadecimal(array[1]) + "}";
    return array;
  }

  // ---- pointers

  void* pointer(int index, std::string& text) {
    const abi_variable& of = parameter(index);
    switch (of.role) {
      case ABI_TEXT:
        return one_text(of, text);
      case ABI_TEXTS:
        count_ = 1 + random().below(2);
        text = "{...}";
        return make_texts(call_, call_.function->name, of.name, count_, random(), is_wrong());
      case ABI_HANDLES:
        return handles(of, text);
      case ABI_INPUT:
        return input(of, text);
      case ABI_OPTIONS:
        return options(of, text);
      case ABI_FOREIGN:
        return foreign(of, text);
      case ABI_USER_DATA:
        return user_data(text);
      default:
        text = "out";
        return output(index);
    }
  }

  void* one_text(const abi_variable& of, std::string& text) {
    const std::string value =
        is_wrong() ? bad_text(random()) : good_text(call_.function->name, of.name, random());
    text = "\"" + value.substr(0, 48) + "\"";
    return const_cast<char*>(call_.keep(value));
  }

  void* input(const abi_variable& of, std::string& text) {
    const std::string name = of.name;
    if (name == "shape") {
      return shape(text);
    }
    if (name == "data" || name == "from") {
      text = "bytes";
      return bytes();
    }
    if (name == "offsets") {  // as many as the shape before them has
      text = "{0...}";
      return call_.array<int64_t>({0, 0, 0, is_wrong() ? -1 : 0});
    }
    count_ = 1 + random().below(4);
    if (std::strcmp(of.type, "fsdp2_value") == 0) {
      return operator_inputs(text);
    }
    if (std::strcmp(of.type, "double") == 0) {
      text = "{1, 0.5...}";
      return call_.array<double>({1, 0.5, 2, is_wrong() ? NAN : 1, 0});
    }
    text = "{1, 2, 3, 4...}";
    return call_.array<int64_t>({1, 2, 3, 4, is_wrong() ? INT64_MAX : 31, 0});
  }

  // Mostly tensors, which is what operators take first.
  void* operator_inputs(std::string& text) {
    static const std::vector<size_t> kCounts = {1, 1, 1, 2, 2, 3};
    count_ = random().of(kCounts);
    auto* values = call_.array<fsdp2_value>({});
    for (size_t i = 0; i < kElements; ++i) {
      values[i] = operator_input(i);
      text += i >= count_ ? "" : (i == 0 ? "kinds " : ", ") + std::to_string(values[i].kind);
    }
    return values;
  }

  fsdp2_value operator_input(size_t index) {
    static const std::vector<int32_t> kFirst = {FSDP2_VALUE_TENSOR, FSDP2_VALUE_TENSOR,
                                                FSDP2_VALUE_TENSOR, FSDP2_VALUE_TENSORS};
    static const std::vector<int32_t> kOthers = {
        FSDP2_VALUE_TENSOR,   FSDP2_VALUE_TENSOR, FSDP2_VALUE_INT,     FSDP2_VALUE_INT,
        FSDP2_VALUE_NONE,     FSDP2_VALUE_DOUBLE, FSDP2_VALUE_DEFAULT, FSDP2_VALUE_BOOL,
        FSDP2_VALUE_DTYPE,    FSDP2_VALUE_INTS,   FSDP2_VALUE_DOUBLES, FSDP2_VALUE_STRING,
        FSDP2_VALUE_GENERATOR};
    const abi_variable generator = {"fsdp2_generator", "inputs", ABI_HANDLE, 0, 8, 0, 1};
    const abi_variable tensor = {"fsdp2_tensor", "inputs", ABI_HANDLE, 0, 8, 0, 1};
    fsdp2_value value{};
    value.kind = is_wrong() ? static_cast<int32_t>(random().below(15)) - 1
                            : random().of(index == 0 ? kFirst : kOthers);
    value.integer = static_cast<int64_t>(random().below(3));
    value.number = 0.5;
    value.tensor.id = handle(tensor);
    value.count = random().below(4);
    if (value.kind == FSDP2_VALUE_GENERATOR) {
      value.integer = static_cast<int64_t>(handle(generator));
    }
    if (value.kind == FSDP2_VALUE_STRING) {
      value.data = call_.keep("cpu");
    } else if (value.kind == FSDP2_VALUE_TENSORS) {
      value.data = call_.array<uint64_t>({handle(tensor), handle(tensor), handle(tensor)});
    } else {
      value.data = call_.array<int64_t>({2, 4, 1});
    }
    return value;
  }

  // Tokens below any vocabulary here, which as numbers of other types are small, too.
  void* bytes() {
    auto* memory = call_.array<int64_t>(std::vector<int64_t>(kRoom / 8));
    for (size_t i = 0; i < kRoom / 8; ++i) {
      memory[i] = static_cast<int64_t>(random().below(16));
    }
    return memory;
  }

  void* shape(std::string& text) {
    static const std::vector<std::vector<int64_t>> kShapes = {{2, 4}, {2, 4},    {8},
                                                              {},     {1, 1, 3}, {0, 5}};
    static const std::vector<int64_t> kWrong = {-1, INT64_MAX, INT64_MIN, int64_t{1} << 40};
    std::vector<int64_t> sizes = random().of(kShapes);
    count_ = sizes.size();
    shape_numel_ = 1;
    for (const int64_t size : sizes) {
      shape_numel_ *= static_cast<size_t>(size);
    }
    if (is_wrong() && !sizes.empty()) {
      sizes[random().below(sizes.size())] = random().of(kWrong);
    }
    for (const int64_t size : sizes) {
      text += (text.empty() ? "{" : ", ") + std::to_string(size);
    }
    text += text.empty() ? "{}" : "}";
    return call_.array(sizes);
  }

  void* options(const abi_variable& of, std::string& text) {
    options_size_ = of.size;
    void* made = make_options(call_, of, source_, is_wrong(), text);
    text = "{" + text + "}";
    return made;
  }

  void* foreign(const abi_variable& of, std::string& text) {
    text = of.name;
    return make_foreign_tensor(source_, is_wrong());
  }

  // Something that the library has to give back if there is a release function behind it.
  void* user_data(std::string& text) {
    static char never_released;
    text = "user_data";
    if (random().one_in(4)) {
      return &never_released;
    }
    call_.lent = ::operator new(1);
    return call_.lent;
  }

  abi_argument callback(const abi_variable& of, std::string& text) {
    abi_argument made{};
    const bool releases = std::strcmp(of.type, "fsdp2_release_fn") == 0;
    if (!releases && (!has_callback_ || is_wrong())) {  // the second of two goes with the first
      callback_is_null_ = random().one_in(4);
      has_callback_ = true;
    }
    const bool is_null = releases ? call_.lent == nullptr : callback_is_null_;
    text = is_null ? "NULL" : of.name;
    if (!is_null) {
      made.function = callback_of(of.type).function;
    }
    return made;
  }

  void* output(int index) {
    const abi_variable& of = parameter(index);
    Output made{index, call_.memory(kRoom), {}};
    std::memset(made.memory, kUntouched, kRoom);
    const std::string name = of.name;
    if (of.role == ABI_RESULT) {
      const uint32_t sizes[] = {static_cast<uint32_t>(of.size), 0, 4096, 4097};
      std::memcpy(made.memory, &sizes[is_wrong() ? random().below(4) : 0], sizeof(sizes[0]));
    } else if (name == "values") {
      std::memset(made.memory, 0, kElements * sizeof(double));
    }
    made.before.assign(made.memory, made.memory + kRoom);
    call_.outputs.push_back(std::move(made));
    return call_.outputs.back().memory;
  }

  Call& call_;
  Source source_;
  size_t wrong_;
  size_t count_ = 1;         // of the array last made
  size_t shape_numel_ = 1;   // of the shape last made
  size_t options_size_ = 0;  // of the struct last made
  bool is_text_buffer_ = false;
  bool has_callback_ = false;
  bool callback_is_null_ = false;
};

}  // namespace

std::unique_ptr<Call> make_call(const abi_function& function, Source source, size_t wrong) {
  auto call = std::make_unique<Call>(function);
  Maker(*call, source, wrong).make();
  return call;
}

}  // namespace fsdp2::fuzz
