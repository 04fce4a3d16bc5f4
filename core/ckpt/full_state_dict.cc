#include "core/ckpt/full_state_dict.h"

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/ckpt/safetensors.h"
#include "core/ckpt/safetensors_source.h"
#include "core/comm/agreement.h"

namespace fsdp2::ckpt {

namespace {

std::vector<TensorSpec> full_plan(const std::vector<fsdp::ShardedParam*>& params) {
  std::vector<TensorSpec> plan;
  for (const fsdp::ShardedParam* param : params) {
    plan.push_back({param->name(), param->dtype(), param->layout().global_shape});
  }
  sort_by_item_size(plan);
  return plan;
}

fsdp::ShardedParam& find_by_name(const std::vector<fsdp::ShardedParam*>& params,
                                 const std::string& name) {
  for (fsdp::ShardedParam* param : params) {
    if (param->name() == name) {
      return *param;
    }
  }
  fail(Code::kInternal, "no parameter {}", name);
}

}  // namespace

void save_full_state_dict(fsdp::Unit& root, const std::string& path) {
  World& world = root.mesh().world();
  const std::vector<fsdp::ShardedParam*>& params = root.parameters();
  const std::vector<TensorSpec> plan = full_plan(params);
  std::optional<SafetensorsWriter> writer;
  const std::string what = "saving " + path;
  // Whether the file can be made is known to all before the first gather. What goes wrong later is
  // kept until all gathers are done, so that no rank waits for one that has left.
  agree(world, what, [&] {
    if (world.rank() == 0) {
      writer.emplace(path, plan);
    }
    return std::string();
  });
  std::optional<Error> failed;
  for (const TensorSpec& spec : plan) {
    const at::Tensor full = fsdp::full_parameter(root, find_by_name(params, spec.name));
    if (writer && !failed) {
      try {
        writer->append(spec.name, full);
      } catch (...) {
        failed = current_exception_as_error();
      }
    }
  }
  agree(world, what, [&] {
    if (failed) {
      throw *failed;
    }
    if (writer) {
      writer->finish();
    }
    return std::string();
  });
}

void save_pretrained(fsdp::Unit& root, const std::string& config_json,
                     const std::string& directory) {
  World& world = root.mesh().world();
  agree(world, "saving " + directory, [&] {
    if (world.rank() == 0) {
      std::error_code error;
      std::filesystem::create_directories(directory, error);
      FSDP2_CHECK(!error, Code::kIo, "{}: cannot make the directory: {}", directory,
                  error.message());
      AtomicFile config(directory + "/config.json");
      config.write(config_json.data(), config_json.size());
      config.commit();
    }
    return std::string();
  });
  save_full_state_dict(root, directory + "/model.safetensors");
}

void load_full_state_dict(fsdp::Unit& root, const std::string& path) {
  std::optional<SafetensorsSource> source;
  agree(root.mesh().world(), "loading " + path, [&] {
    source.emplace(path);
    return std::string();
  });
  fsdp::load_parameters(root, *source);
}

}  // namespace fsdp2::ckpt
