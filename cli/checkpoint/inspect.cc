#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/arguments.h"
#include "cli/checkpoint/commands.h"
#include "cli/library.h"
#include "cli/machine/size_text.h"

namespace fsdp2::cli {

namespace {

using Json = nlohmann::ordered_json;

// A name from a file, quoted if it has what a terminal would obey or a line cannot hold.
std::string name_in(const Json& holder) {
  const std::string name = holder.at("name").get<std::string>();
  const bool is_printable = std::none_of(name.begin(), name.end(), [](unsigned char byte) {
    return byte < 0x20 || byte == 0x7F || byte == 0xC2;
  });
  return is_printable ? name : Json(name).dump(-1, ' ', true);
}

std::string checksum_text(const Json& holder) {
  const auto found = holder.find("checksum");
  return found == holder.end() || found->is_null() ? "" : "  " + found->get<std::string>();
}

void print_tensor(const Json& tensor) {
  const Json& chunks = tensor.at("chunks");
  std::cout << name_in(tensor) << "  " << tensor.at("dtype").get<std::string>() << " "
            << tensor.at("shape").dump() << "  " << size_text(tensor.at("bytes").get<double>());
  if (chunks.size() == 1) {
    std::cout << "  " << chunks[0].at("file").get<std::string>() << checksum_text(chunks[0]);
  }
  std::cout << "\n";
  for (size_t i = 0; chunks.size() > 1 && i < chunks.size(); ++i) {
    std::cout << "    at " << chunks[i].at("offsets").dump() << " " << chunks[i].at("sizes").dump()
              << "  " << chunks[i].at("file").get<std::string>() << checksum_text(chunks[i])
              << "\n";
  }
}

bool has_nothing_to_compare(const Json& item) {
  const auto found = item.find("checksum");
  return found != item.end() && found->is_null();
}

// One line about what reading everything has shown.
std::string verdict(const Json& checkpoint) {
  size_t items = 0;
  size_t unchecked = 0;
  size_t unread = 0;
  for (const Json& tensor : checkpoint.at("tensors")) {
    for (const Json& chunk : tensor.at("chunks")) {
      const bool has_bytes = chunk.at("bytes").get<int64_t>() > 0;
      items += has_bytes ? 1 : 0;
      unchecked += has_bytes && has_nothing_to_compare(chunk) ? 1 : 0;
    }
  }
  for (const Json& object : checkpoint.at("objects")) {
    ++items;
    unchecked += has_nothing_to_compare(object) ? 1 : 0;
    unread += object.contains("error") ? 1 : 0;
  }
  std::string text = unchecked == 0
                         ? "everything has been read and is sound"
                         : "everything has been read; " + std::to_string(unchecked) + " of " +
                               std::to_string(items) + " items have no checksum to compare";
  if (unread > 0) {
    text += "; " + std::to_string(unread) + " objects are not read as values";
  }
  return text;
}

// "step 100, saved by 4 ranks", as far as it is known.
std::string origin_text(const Json& checkpoint) {
  const Json& step = checkpoint.at("step");
  const Json& ranks = checkpoint.at("world_size");
  std::string text = step.is_null() ? "no step" : "step " + step.dump();
  if (!ranks.is_null()) {
    text += ", saved by " + ranks.dump() + (ranks == 1 ? " rank" : " ranks");
  }
  return text;
}

// Each rank's file may have its part of a tensor.
size_t count_names(const Json& tensors) {
  std::set<std::string> names;
  for (const Json& tensor : tensors) {
    names.insert(tensor.at("name").get<std::string>());
  }
  return names.size();
}

void print_summary(const Json& checkpoint) {
  std::cout << checkpoint.at("path").get<std::string>() << ": "
            << checkpoint.at("format").get<std::string>()
            << (checkpoint.at("complete").get<bool>() ? "" : ", INCOMPLETE")
            << (checkpoint.at("manifest").get<bool>() ? ", with checksums" : "") << "\n"
            << origin_text(checkpoint) << "; " << count_names(checkpoint.at("tensors"))
            << " tensors of " << size_text(checkpoint.at("bytes").get<double>()) << ", "
            << checkpoint.at("objects").size() << " objects\n\n";
}

void print(const Json& checkpoint) {
  print_summary(checkpoint);
  for (const Json& tensor : checkpoint.at("tensors")) {
    print_tensor(tensor);
  }
  for (const Json& object : checkpoint.at("objects")) {
    std::cout << name_in(object);
    if (object.contains("value")) {
      std::cout << " = " << object.at("value").get<std::string>();
    } else if (object.contains("error")) {
      std::cout << "  NOT READ: " << object.at("error").get<std::string>();
    }
    std::cout << "\n";
  }
}

}  // namespace

int inspect(const std::vector<std::string>& arguments) {
  std::string path;
  bool json = false;
  bool verify = false;
  bool rebuild = false;
  CLI::App app(
      "Lists what a checkpoint holds: a DCP directory, the newest of a series, .pth or "
      "safetensors files, a model directory.",
      "fsdp2 inspect");
  set_style(app, "PATH [OPTIONS]");
  as_path(as_utf8(app.add_option("PATH", path, "Checkpoint to list")))->required();
  app.add_flag("--json", json, "Print one JSON object");
  app.add_flag("--verify", verify, "Read everything and compare all checksums");
  app.add_flag("--rebuild-manifest", rebuild,
               "Write the checksums of a DCP directory that another program has changed");
  if (!parse_arguments(app, arguments)) {
    return 0;
  }
  if (rebuild) {
    check(fsdp2_checkpoint_rebuild_manifest(path.c_str()));
  }
  if (verify) {
    check(fsdp2_checkpoint_verify(path.c_str()));
  }
  const std::string text = text_of(fsdp2_checkpoint_inspect, path.c_str());
  if (json) {
    std::cout << text << "\n";
  } else {
    print(Json::parse(text));
    std::cout << (verify ? verdict(Json::parse(text)) + "\n" : "");
  }
  return 0;
}

}  // namespace fsdp2::cli
