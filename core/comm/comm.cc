#include "core/comm/comm.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/Event.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/comm/check/collective_check.h"
#include "core/comm/check/collective_subject.h"
#include "core/comm/check/collective_wait.h"
#include "core/comm/transport/all_reduce_path.h"

namespace fsdp2 {

namespace {

using Clock = std::chrono::steady_clock;
using NotDifferentiated = at::AutoDispatchBelowADInplaceOrView;

constexpr std::chrono::milliseconds kSlice{50};
// How long the text of a rank that failed may take to arrive after its connections are gone.
constexpr std::chrono::milliseconds kNoticeDelay{300};

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
  }
  fail(Code::kInternal, "reduce op {}", static_cast<int>(op));
}

void check_average(const char* collective, const at::Tensor& tensor, ReduceOp op) {
  FSDP2_CHECK(op != ReduceOp::kAverage || at::isFloatingType(tensor.scalar_type()),
              Code::kInvalidArgument, "{}: no average of {}: expected a floating-point tensor",
              collective, c10::toString(tensor.scalar_type()));
}

void check_numel(const char* collective, const at::Tensor& whole, const char* role,
                 const at::Tensor& part, int size) {
  FSDP2_CHECK(whole.numel() == part.numel() * size, Code::kInvalidArgument,
              "{}: the {} has {} elements, expected {} x {} ranks", collective, role, whole.numel(),
              part.numel(), size);
}

void copy_unless_same(const at::Tensor& to, const at::Tensor& from) {
  if (to.const_data_ptr() != from.const_data_ptr() || to.scalar_type() != from.scalar_type()) {
    to.copy_(from);
  }
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return current_exception_text();
  }
}

int64_t bytes_of(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

void CommWork::wait() {
  if (const auto finish = std::exchange(finish_, nullptr)) {
    finish();
  }
}

void CommWork::wait_on_stream() {
  if (order_) {
    order_();
  } else {
    wait();
  }
}

Comm::Comm(Identity identity, std::shared_ptr<Channel> channel,
           std::shared_ptr<FailureNotice> failure, std::chrono::milliseconds timeout)
    : identity_(std::move(identity)),
      channel_(std::move(channel)),
      failure_(std::move(failure)),
      timeout_(timeout) {}

std::shared_ptr<Comm> Comm::share(const std::string& name) const {
  Identity identity = identity_;
  identity.name = name;
  return std::make_shared<Comm>(std::move(identity), channel_, failure_, timeout_);
}

std::shared_ptr<Comm> Comm::share_with(std::shared_ptr<FailureNotice> failure) const {
  return std::make_shared<Comm>(identity_, channel_, std::move(failure), timeout_);
}

void Comm::connect() {
  check_healthy("connect");
  if (channel_) {
    channel_->backend(*failure_);
  }
}

CommWork Comm::all_gather(at::Tensor out, at::Tensor in) {
  constexpr const char* kName = "all_gather";
  check_both(kName, out, in);
  check_numel(kName, out, "output", in, size());
  check_healthy(kName);
  const NotDifferentiated guard;
  out = out.view(-1);
  in = in.view(-1);
  if (!channel_) {
    copy_unless_same(out, in);
    return {};
  }
  counters_.all_gathers += 1;
  counters_.all_gather_bytes += bytes_of(in) * (size() - 1);
  return start({kName, &in},
               [&](c10d::Backend& backend) { return backend._allgather_base(out, in); });
}

CommWork Comm::reduce_scatter(at::Tensor out, at::Tensor in, ReduceOp op) {
  constexpr const char* kName = "reduce_scatter";
  check_tensor(kName, "output", out);
  check_tensor(kName, "input", in);
  check_numel(kName, in, "input", out, size());
  check_average(kName, in, op);
  FSDP2_CHECK(op != ReduceOp::kMax, Code::kInvalidArgument, "{}: expected sum or average, got max",
              kName);
  check_healthy(kName);
  const NotDifferentiated guard;
  out = out.view(-1);
  in = in.view(-1);
  if (!channel_) {
    copy_unless_same(out, in);
    return {};
  }
  counters_.reduce_scatters += 1;
  counters_.reduce_scatter_bytes += bytes_of(in) / size() * (size() - 1);
  c10d::ReduceScatterOptions options;
  options.reduceOp = to_c10d(op);
  return start({kName, &in, reduce_op_name(op)}, [&](c10d::Backend& backend) {
    return backend._reduce_scatter_base(out, in, options);
  });
}

CommWork Comm::all_reduce(at::Tensor tensor, ReduceOp op) {
  constexpr const char* kName = "all_reduce";
  check_tensor(kName, "tensor", tensor);
  check_average(kName, tensor, op);
  check_healthy(kName);
  if (!channel_) {
    return {};
  }
  const NotDifferentiated guard;
  counters_.all_reduces += 1;
  counters_.all_reduce_bytes += all_reduce_received_bytes(
      tensor.numel(), static_cast<int64_t>(tensor.element_size()), size());
  c10d::AllreduceOptions options;
  options.reduceOp = to_c10d(op);
  std::vector<at::Tensor> tensors{tensor.view(-1)};
  return start({kName, &tensor, reduce_op_name(op)},
               [&](c10d::Backend& backend) { return backend.allreduce(tensors, options); });
}

CommWork Comm::broadcast(at::Tensor tensor, int root) {
  constexpr const char* kName = "broadcast";
  check_tensor(kName, "tensor", tensor);
  FSDP2_CHECK(0 <= root && root < size(), Code::kInvalidArgument,
              "{}: root {} is not a rank of group {}, which has {}", kName, root, name(), size());
  check_healthy(kName);
  if (!channel_) {
    return {};
  }
  const NotDifferentiated guard;
  counters_.broadcasts += 1;
  counters_.broadcast_bytes += rank() == root ? 0 : bytes_of(tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{tensor.view(-1)};
  return start({kName, &tensor, nullptr, root},
               [&](c10d::Backend& backend) { return backend.broadcast(tensors, options); });
}

CommWork Comm::scatter(at::Tensor out, at::Tensor in, int root) {
  constexpr const char* kName = "scatter";
  FSDP2_CHECK(0 <= root && root < size(), Code::kInvalidArgument,
              "{}: root {} is not a rank of group {}, which has {}", kName, root, name(), size());
  const bool sends = rank() == root;
  if (sends) {
    check_both(kName, out, in);
    check_numel(kName, in, "input", out, size());
  } else {
    check_tensor(kName, "output", out);
  }
  check_healthy(kName);
  const NotDifferentiated guard;
  out = out.view(-1);
  if (!channel_) {
    copy_unless_same(out, in.view(-1));
    return {};
  }
  counters_.scatters += 1;
  counters_.scatter_bytes += sends ? 0 : bytes_of(out);
  std::vector<at::Tensor> outputs{out};
  std::vector<std::vector<at::Tensor>> inputs;
  if (sends) {
    inputs.push_back(in.view(-1).split(out.numel()));
    if (out.numel() == 0) {  // split of nothing is one piece
      inputs.back().assign(size(), out);
    }
  }
  c10d::ScatterOptions options;
  options.rootRank = root;
  return start({kName, &out, nullptr, root},
               [&](c10d::Backend& backend) { return backend.scatter(outputs, inputs, options); });
}

CommWork Comm::all_to_all(at::Tensor out, at::Tensor in) {
  constexpr const char* kName = "all_to_all";
  check_both(kName, out, in);
  FSDP2_CHECK(out.numel() == in.numel() && in.numel() % size() == 0, Code::kInvalidArgument,
              "{}: expected an output and an input of as many elements, in {} equal parts, found "
              "{} and {}",
              kName, size(), out.numel(), in.numel());
  FSDP2_CHECK(size() == 1 || !out.is_alias_of(in), Code::kInvalidArgument,
              "{}: expected an output with memory of its own, found the input's", kName);
  check_healthy(kName);
  const NotDifferentiated guard;
  out = out.view(-1);
  in = in.view(-1);
  if (!channel_) {
    copy_unless_same(out, in);
    return {};
  }
  counters_.all_to_alls += 1;
  counters_.all_to_all_bytes += bytes_of(in) / size() * (size() - 1);
  return start({kName, &in}, [&](c10d::Backend& backend) {
    std::vector<int64_t> equal;  // no sizes: equal parts
    return backend.alltoall_base(out, in, equal, equal, {});
  });
}

void Comm::barrier() {
  constexpr const char* kName = "barrier";
  check_healthy(kName);
  if (channel_) {
    counters_.barriers += 1;
    start({kName}, [](c10d::Backend& backend) { return backend.barrier(); }).wait();
  }
}

void Comm::check_streams() const {
  const std::exception_ptr error = channel_ ? channel_->stream_error() : nullptr;
  if (error) {
    fail_all("a collective", Code::kComm, message_of(error));
  }
}

void Comm::check_tensor(const char* collective, const char* role, const at::Tensor& tensor) const {
  FSDP2_CHECK(tensor.defined() && tensor.layout() == at::kStrided && tensor.is_contiguous(),
              Code::kInvalidArgument, "{}: the {} is not a contiguous tensor", collective, role);
  const bool has_nothing_to_move = identity_.is_fake && tensor.is_meta();
  FSDP2_CHECK(has_nothing_to_move || tensor.device().type() == device().type(),
              Code::kInvalidArgument,
              "{}: the {} is on {}, but group {} is one of {}: copy it there, or use a group of "
              "its own device",
              collective, role, tensor.device().str(), name(), device().str());
}

void Comm::check_both(const char* collective, const at::Tensor& out, const at::Tensor& in) const {
  check_tensor(collective, "output", out);
  check_tensor(collective, "input", in);
  FSDP2_CHECK(out.scalar_type() == in.scalar_type(), Code::kInvalidArgument,
              "{}: the output is {}, the input {}", collective, c10::toString(out.scalar_type()),
              c10::toString(in.scalar_type()));
}

CommWork Comm::start(const Call& call, const Post& post) {
  if (is_silent_) {
    return leave_out();
  }
  const char* const collective = call.collective;
  c10d::Backend& backend = channel_->backend(*failure_);  // publishes its own failures
  if (channel_->check() != nullptr) {
    compare(call);
  }
  WorkPtr work;
  try {
    work = post(backend);
  } catch (...) {
    fail_all(collective, Code::kComm, current_exception_text());
  }
  channel_->note_start();
  std::function<void()> order;
  if (identity_.order == CollectiveOrder::kOnStream) {
    order = [work] { work->synchronize(); };
  }
  return CommWork([this, collective, work] { wait(collective, *work); }, std::move(order));
}

// Work that waits for it comes after what was given before it, as it would with the collective.
CommWork Comm::leave_out() const {
  if (waits_on_host()) {
    return {};
  }
  const auto stream_now = [device = device()] {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  };
  const auto issued = std::make_shared<c10::Event>(device().type());
  issued->record(stream_now());
  const auto order = [issued, stream_now] { issued->block(stream_now()); };
  return CommWork(order, order);
}

// Waits for short times in turn, because only this thread can leave the wait when another rank
// fails.
void Comm::wait(const char* collective, c10d::Work& work) const {
  const NotDifferentiated guard;
  const auto deadline = Clock::now() + timeout_;
  const WaitingFor waiting(*failure_, members()[rank()], waited_for(collective));
  for (;;) {
    try {
      if (work.wait(std::min(kSlice, timeout_))) {
        channel_->note_end();
        return;
      }
    } catch (...) {
      // A slice's end, or the work's own error, which it keeps.
    }
    waiting.tell();
    if (const std::exception_ptr error = work.exception()) {
      fail_all(collective, Code::kComm, message_of(error));
    }
    if (failure_->failed()) {
      fail_after_peer(collective);
    }
    if (Clock::now() >= deadline && !work.isCompleted()) {
      fail_all(collective, Code::kTimeout,
               fmt::format("not done within {:.1f} s: a rank is late, has stopped or is elsewhere",
                           std::chrono::duration<double>(timeout_).count()));
    }
  }
}

// Returns once all ranks of the group are about to make the same call.
void Comm::compare(const Call& call) const {
  CollectiveCheck& check = *channel_->check();
  const auto ask = [&](const auto& question) {
    try {
      return question();
    } catch (...) {
      fail_all(call.collective, Code::kComm, current_exception_text());
    }
  };
  const auto all_are_here = [&] { return ask([&] { return check.all_have_announced(); }); };
  const std::string what = describe(call);
  const auto deadline = Clock::now() + timeout_;
  const WaitingFor waiting(*failure_, members()[rank()], waited_for(what));
  ask([&] { check.announce(what); });
  while (!all_are_here()) {
    waiting.tell();
    if (failure_->failed() && !all_are_here()) {
      fail_after_peer(call.collective);
    }
    if (Clock::now() >= deadline) {
      fail_all(call.collective, Code::kTimeout,
               fmt::format("not done within {:.1f} s: {}",
                           std::chrono::duration<double>(timeout_).count(),
                           ask([&] { return check.describe_missing(); })),
               waiting.what());
    }
  }
  if (const auto difference = ask([&] { return check.difference(); })) {
    const std::string text = fmt::format("call {} of group {}: the ranks differ: {}", check.calls(),
                                         name(), *difference);
    failure_->publish(text);
    throw Error(Code::kInvalidArgument, text);
  }
}

// "all_gather of Float [128] for model.norm.weight": what must be the same on all ranks.
std::string Comm::describe(const Call& call) {
  std::string text = call.collective;
  if (call.tensor != nullptr) {
    text +=
        fmt::format(" of {} [{}]", c10::toString(call.tensor->scalar_type()), call.tensor->numel());
  }
  if (call.op != nullptr) {
    text += fmt::format(" by {}", call.op);
  }
  if (call.root >= 0) {
    text += fmt::format(" from rank {} of the group", call.root);
  }
  const std::string subject = CollectiveSubject::text();
  return subject.empty() ? text : fmt::format("{} for {}", text, subject);
}

std::string Comm::waited_for(const std::string& what) const {
  return fmt::format("{} of group {}", what, name());
}

void Comm::check_healthy(const char* collective) const {
  if (failure_->failed()) {
    fail_after_peer(collective);
  }
}

void Comm::fail_all(const char* collective, Code code, const std::string& reason,
                    const std::string& waited) const {
  const auto start = Clock::now();
  while (!failure_->failed() && code != Code::kTimeout && Clock::now() - start < kNoticeDelay) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (failure_->failed()) {
    fail_after_peer(collective);
  }
  const std::string text = fmt::format(
      "{} of group {} failed on rank {}: {}{}", collective, name(), members()[rank()], reason,
      describe_absent(*failure_, members(), members()[rank()],
                      waited.empty() ? waited_for(collective) : waited, code == Code::kTimeout));
  failure_->publish(text);
  if (failure_->text() != text) {
    fail_after_peer(collective);
  }
  throw Error(code, text);
}

void Comm::fail_after_peer(const char* collective) const {
  fail(Code::kPeerFailed, "{} of group {} on rank {} given up, since a rank failed: {}", collective,
       name(), members()[rank()], failure_->text());
}

}  // namespace fsdp2
