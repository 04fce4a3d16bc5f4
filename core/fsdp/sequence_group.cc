#include "core/fsdp/sequence_group.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/comm/byte_collectives.h"
#include "core/comm/sequence_dim.h"

namespace fsdp2::fsdp {

namespace {

constexpr char kNone[] = "nothing";
constexpr char kContents[] = ", contents ";
constexpr char kBetween = '\n';

// The peers have a connection of their own, so that what they exchange does not wait for gathers.
std::shared_ptr<const Group> group_along_sequences(const Mesh& mesh) {
  const auto dim = mesh.group(mesh.ndim() - 1);
  return mesh.team().make_group("sequences", dim->members, mesh.device());
}

// "Long [2, 8]" and, where the host can look without waiting for a device, what tells the values.
std::string description_of(const c10::IValue& input) {
  if (input.isNone() || (input.isTensor() && !input.toTensor().defined())) {
    return kNone;
  }
  if (!input.isTensor()) {
    return input.tagKind();
  }
  const at::Tensor& tensor = input.toTensor();
  std::string text =
      fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (tensor.is_cpu() && tensor.layout() == at::kStrided) {
    const at::Tensor flat = tensor.detach().contiguous();
    const auto* bytes = static_cast<const char*>(flat.const_data_ptr());
    text += fmt::format("{}{:x}", kContents, std::hash<std::string_view>()({bytes, flat.nbytes()}));
  }
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == kBetween) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::string shape_in(const std::string& description) {
  return description.substr(0, description.find(kContents));
}

// "Long [2, 8]" as the dtype's number and the sizes.
std::string header_of(const at::Tensor& tensor) {
  std::vector<int64_t> numbers{static_cast<int64_t>(tensor.scalar_type())};
  numbers.insert(numbers.end(), tensor.sizes().begin(), tensor.sizes().end());
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t)};
}

at::Tensor empty_like_header(const std::string& header) {
  std::vector<int64_t> numbers(header.size() / sizeof(int64_t));
  std::copy_n(header.data(), header.size(), reinterpret_cast<char*>(numbers.data()));
  const auto dtype = static_cast<at::ScalarType>(numbers.front());
  numbers.erase(numbers.begin());
  return at::empty(numbers, at::device(at::kCPU).dtype(dtype));
}

}  // namespace

SequenceGroup::SequenceGroup(std::shared_ptr<Mesh> mesh)
    : mesh_(std::move(mesh)),
      group_(group_along_sequences(*mesh_)),
      batches_(group_->control->share(group_->control->name() + "/batches")) {}

std::shared_ptr<SequenceGroup> SequenceGroup::share(nn::Module& model, std::shared_ptr<Mesh> mesh) {
  const auto group = std::make_shared<SequenceGroup>(std::move(mesh));
  group->group_->gather->connect();
  group->group_->control->connect();
  model.add_hooks(group);
  nn::set_sequence_peers(model, group);
  return group;
}

void SequenceGroup::unshare(nn::Module& model, const std::shared_ptr<SequenceGroup>& group) {
  model.remove_hooks(group.get());
  nn::set_sequence_peers(model, nullptr);
}

void SequenceGroup::all_to_all(const at::Tensor& out, const at::Tensor& in) {
  group_->gather->all_to_all(out, in).wait_on_stream();
}

void SequenceGroup::all_gather(const at::Tensor& out, const at::Tensor& in) {
  group_->gather->all_gather(out, in).wait_on_stream();
}

void SequenceGroup::sum(const at::Tensor& tensor) {
  group_->gather->all_reduce(tensor, ReduceOp::kSum).wait_on_stream();
}

void SequenceGroup::make_alike(nn::Values& inputs) {
  std::vector<std::string> own;
  for (const c10::IValue& input : inputs) {
    own.push_back(description_of(input));
  }
  own.resize(std::max<size_t>(own.size(), 1), kNone);
  const std::string sent = fmt::format("{}", fmt::join(own, std::string(1, kBetween)));
  std::vector<std::vector<std::string>> told;
  size_t most = 0;
  for (const std::string& text : all_gather_bytes(*batches_, sent)) {
    told.push_back(split(text));
    most = std::max(most, told.back().size());
  }
  for (std::vector<std::string>& of_peer : told) {
    of_peer.resize(most, kNone);
  }
  check_are_alike(told);
  inputs.resize(most);
  for (size_t i = 0; i < most; ++i) {
    const auto has = [&](const auto& of_peer) { return of_peer[i] != kNone; };
    const auto first = std::find_if(told.begin(), told.end(), has);
    if (first != told.end() && !std::all_of(told.begin(), told.end(), has)) {
      inputs[i] = take_from(static_cast<int>(first - told.begin()), inputs[i]);
    }
  }
}

void SequenceGroup::check_are_alike(const std::vector<std::vector<std::string>>& told) const {
  for (size_t i = 0; i < told[0].size(); ++i) {
    size_t first = told.size();
    for (size_t peer = 0; peer < told.size(); ++peer) {
      if (told[peer][i] == kNone) {
        continue;
      }
      first = std::min(first, peer);
      const std::string& expected = told[first][i];
      const std::string& found = told[peer][i];
      const bool by_shape = shape_in(expected) != shape_in(found);
      FSDP2_CHECK(expected == found, Code::kInvalidArgument,
                  "ranks {} and {} share sequences: expected the same batch on both, found input "
                  "{} to be {} on the one and {} on the other",
                  group_->members[first], group_->members[peer], i, shape_in(expected),
                  by_shape ? shape_in(found) : "of other contents");
    }
  }
}

// From a peer that has it, which those that have it keep.
c10::IValue SequenceGroup::take_from(int peer, const c10::IValue& own) {
  const bool gives = batches_->rank() == peer;
  const std::string header =
      broadcast_bytes(*batches_, gives ? header_of(own.toTensor()) : std::string(), peer);
  const at::Tensor values =
      gives ? own.toTensor().detach().to(at::kCPU).contiguous() : empty_like_header(header);
  batches_->broadcast(values, peer).wait();
  return own.isTensor() ? own : c10::IValue(values);
}

std::shared_ptr<const SequenceGroup> sequence_group_of(const nn::Module& model) {
  const auto* sharer = dynamic_cast<const nn::SequenceSharer*>(&model);
  return sharer == nullptr ? nullptr
                           : std::dynamic_pointer_cast<const SequenceGroup>(sharer->peers());
}

}  // namespace fsdp2::fsdp
