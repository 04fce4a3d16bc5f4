#include "core/ckpt/ranks/gathered_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/ckpt/ranks/write_plan.h"
#include "core/ckpt/value/chunked_tensor.h"
#include "core/comm/agreement.h"
#include "core/comm/all_gather_numbers.h"

namespace fsdp2::ckpt {

namespace {

// A chunk and who sends it.
struct HeldChunk {
  Box box;
  int rank;
  size_t index;  // in the state's tensors
};

// The offsets and sizes of each tensor's chunk on all ranks, one number a dim.
class Boxes {
 public:
  Boxes(Team& team, const StateDict& state) {
    std::vector<int64_t> own;
    for (const StateTensor& tensor : state.tensors) {
      starts_.push_back(own.size());
      own.insert(own.end(), tensor.offsets.begin(), tensor.offsets.end());
      own.insert(own.end(), tensor.local.sizes().begin(), tensor.local.sizes().end());
    }
    numbers_ = own.size();
    all_ = all_gather_numbers(team.control(), own);
  }

  Box of(int rank, size_t index, size_t dims) const {
    const int64_t* at = all_.data() + static_cast<size_t>(rank) * numbers_ + starts_[index];
    return {{at, at + dims}, {at + dims, at + 2 * dims}};
  }

 private:
  size_t numbers_ = 0;  // of one rank
  std::vector<size_t> starts_;
  std::vector<int64_t> all_;  // [rank][tensor][offsets, sizes]
};

bool is_empty(const Box& box) {
  return std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end();
}

// The chunks of the tensor that is listed from `first` to before `last`, each once.
std::vector<HeldChunk> find_chunks(const Boxes& boxes, int ranks, size_t first, size_t last,
                                   size_t dims) {
  std::vector<HeldChunk> chunks;
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t index = first; index < last; ++index) {
      Box box = boxes.of(rank, index, dims);
      const bool is_new = std::none_of(chunks.begin(), chunks.end(), [&](const HeldChunk& chunk) {
        return chunk.box.offsets == box.offsets;
      });
      if (is_new && !is_empty(box)) {
        chunks.push_back({std::move(box), rank, index});
      }
    }
  }
  return chunks;
}

void check_covered(const StateTensor& tensor, const std::vector<HeldChunk>& chunks) {
  ChunkedTensor described{tensor.local.scalar_type(), tensor.shape, {}};
  for (const HeldChunk& chunk : chunks) {
    described.chunks.push_back(chunk.box);
  }
  FSDP2_CHECK(covers(described), Code::kInvalidArgument,
              "{}: the chunks of all ranks together do not hold all of it", tensor.name);
}

// Sends what `local` is on its rank; returns it on every rank, on the CPU.
at::Tensor send_chunk(Team& team, const HeldChunk& chunk, const at::Tensor& local) {
  const at::Tensor piece = team.rank() == chunk.rank
                               ? local.to(at::kCPU).contiguous()
                               : at::empty(chunk.box.sizes, local.options().device(at::kCPU));
  // As bytes: backends do not know all dtypes.
  team.control().broadcast(piece.view(-1).view(at::kByte), chunk.rank).wait();
  return piece;
}

}  // namespace

StateDict gather_state(Team& team, const StateDict& state, GatherTo to) {
  const at::NoGradGuard no_grad;
  agree(team, "gathering a state", [&] {
    FSDP2_CHECK(!team.is_fake(), Code::kUnsupported,
                "ranks of a fake world have nothing to gather");
    state.check_has_memory();
    return plan_text(state);
  });
  const bool keeps = to == GatherTo::kEveryRank || team.rank() == 0;
  const Boxes boxes(team, state);
  StateDict full;
  for (size_t first = 0, last = 0; first < state.tensors.size(); first = last) {
    const StateTensor& tensor = state.tensors[first];
    while (last < state.tensors.size() && state.tensors[last].name == tensor.name) {
      ++last;
    }
    const std::vector<HeldChunk> chunks =
        find_chunks(boxes, team.size(), first, last, tensor.shape.size());
    check_covered(tensor, chunks);
    const at::TensorOptions options = tensor.local.options().device(at::kCPU);
    const at::Tensor whole = keeps ? at::empty(tensor.shape, options) : at::Tensor();
    for (const HeldChunk& chunk : chunks) {
      const at::Tensor piece = send_chunk(team, chunk, state.tensors[chunk.index].local);
      if (keeps) {
        narrowed(whole, chunk.box.offsets, chunk.box.sizes).copy_(piece);
      }
    }
    if (keeps) {
      full.add_whole(tensor.path, whole);
      full.tensors.back().aliases = tensor.aliases;
    }
  }
  if (keeps) {
    full.objects = state.objects;
  }
  return full;
}

}  // namespace fsdp2::ckpt
