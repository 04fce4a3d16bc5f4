#include "core/exported/script/script_types.h"

#include <string_view>

#include "core/base/error.h"
#include "core/ckpt/value/printable_name.h"

namespace fsdp2::exported {

namespace {

std::vector<c10::IValue> constants_of(const ScriptArchive& archive) {
  std::vector<c10::IValue> constants;
  for (at::Tensor& tensor : archive.read_constants()) {
    constants.emplace_back(std::move(tensor));
  }
  return constants;
}

// The text of the exception that is being handled: what LibTorch says of code takes several lines.
std::string whole_text() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Where in the code it is, in lines that are indented.
bool is_about_code(std::string_view line) {
  return line.find_first_not_of(" ~<-.") == std::string_view::npos || line.substr(0, 2) == "  " ||
         line.find("TorchScript") != std::string_view::npos;
}

}  // namespace

std::string script_error_text() {
  const std::string text = whole_text();
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (!is_about_code(line)) {
      return ckpt::printable_name(std::string(line));
    }
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return ckpt::printable_name(text);
}

ScriptTypes::ScriptTypes(std::shared_ptr<const ScriptArchive> archive)
    : archive_(std::move(archive)),
      sources_(archive_->read_sources()),
      constants_(constants_of(*archive_)),
      unit_(std::make_shared<torch::jit::CompilationUnit>()),
      importer_(
          unit_, &constants_, [this](const std::string& name_space) { return source(name_space); },
          archive_->version()) {}

std::shared_ptr<torch::jit::Source> ScriptTypes::source(const std::string& name_space) const {
  const auto text = sources_.find(name_space);
  return text == sources_.end() ? nullptr
                                : std::make_shared<torch::jit::Source>(text->second, name_space, 1);
}

c10::ClassTypePtr ScriptTypes::find_class(const std::string& name) const {
  const std::string title = ckpt::printable_name(name);
  c10::TypePtr type;
  try {
    type = importer_.loadType(c10::QualifiedName(name));
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    fail(Code::kUnsupported, "{}: this LibTorch cannot compile {}: {}", archive_->path(), title,
         script_error_text());
  }
  auto found = type == nullptr ? nullptr : type->cast<c10::ClassType>();
  FSDP2_CHECK(found != nullptr, Code::kUnsupported, "{}: there is no class {} in its code",
              archive_->path(), title);
  return found;
}

}  // namespace fsdp2::exported
