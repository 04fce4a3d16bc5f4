#include "core/ckpt/safetensors/full_safetensors_writer.h"

#include <utility>

#include "core/ckpt/safetensors/safetensors_file.h"

namespace fsdp2::ckpt {

namespace {

class OneSafetensors final : public FullWriter {
 public:
  OneSafetensors(const std::string& path, std::vector<TensorSpec> plan)
      : FullWriter(sorted_by_item_size(std::move(plan))), writer_(path, this->plan()) {}

  void append(const std::string& name, const at::Tensor& tensor) override {
    writer_.append(name, tensor);
  }
  void finish() override { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

}  // namespace

std::vector<TensorSpec> sorted_by_item_size(std::vector<TensorSpec> plan) {
  sort_by_item_size(plan);
  return plan;
}

std::unique_ptr<FullWriter> make_safetensors_writer(const std::string& path,
                                                    std::vector<TensorSpec> plan) {
  return std::make_unique<OneSafetensors>(path, std::move(plan));
}

}  // namespace fsdp2::ckpt
