#include "core/comm/failure/failure_notice.h"

#include <utility>

namespace fsdp2 {

FailureNotice::FailureNotice(std::shared_ptr<FailureBoard> board, RankSet ranks)
    : board_(std::move(board)), ranks_(std::move(ranks)) {}

std::shared_ptr<FailureNotice> FailureNotice::over_store(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int world_size,
    std::chrono::milliseconds timeout, StoreKeeper keeper) {
  auto board = std::make_shared<StoreBoard>(store, rank, world_size, timeout, keeper);
  return std::shared_ptr<FailureNotice>(new FailureNotice(std::move(board), RankSet::all()));
}

std::shared_ptr<FailureNotice> FailureNotice::local() {
  return std::shared_ptr<FailureNotice>(
      new FailureNotice(std::make_shared<LocalBoard>(), RankSet::all()));
}

std::shared_ptr<FailureNotice> FailureNotice::of(std::vector<int> ranks) const {
  return std::shared_ptr<FailureNotice>(new FailureNotice(board_, RankSet::of(std::move(ranks))));
}

}  // namespace fsdp2
