#include "tests/support/recording_device/backend.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <array>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "core/comm/transport/staged_backend.h"
#include "core/comm/transport/thread_backend.h"
#include "core/comm/transport/thread_job.h"
#include "tests/support/recording_device/device.h"
#include "tests/support/recording_device/graphs.h"

namespace fsdp2::recording {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

constexpr std::chrono::seconds kLimit{20};
// NCCL ends the collectives of a group in order. Nobody shall rely on that, so that each of the
// waits is there: of this many, any may end before the others.
constexpr int kAtOnce = 32;

// What keeps a collective's memory from being freed: until a stream waits for it, or until it has
// ended if nobody does.
struct Collective {
  WorkPtr work;           // of the host
  Clock end;              // behind it, in the group's stream
  int64_t recording = 0;  // that it is in
  Tensors tensors;
};

// The collectives that nobody waited for: their memory goes when they have ended.
class Detached {
 public:
  void add(std::shared_ptr<Collective> collective) {
    const std::lock_guard<std::mutex> lock(mutex_);
    collectives_.push_back(std::move(collective));
  }
  void drop_ended(Recorder& of_device) {
    std::vector<std::shared_ptr<Collective>> ended;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      for (auto it = collectives_.begin(); it != collectives_.end();) {
        const bool has_ended = (*it)->work->isCompleted();
        if (has_ended) {
          ended.push_back(*it);
        }
        it = has_ended ? collectives_.erase(it) : it + 1;
      }
    }
    for (const auto& collective : ended) {
      of_device.see_end(collective->end);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Collective>> collectives_;
};

class DeviceWork final : public c10d::Work {
 public:
  DeviceWork(std::shared_ptr<Collective> collective, std::shared_ptr<Detached> detached,
             at::Device device)
      : collective_(std::move(collective)), detached_(std::move(detached)), device_(device) {}
  ~DeviceWork() override {
    if (!collective_->tensors.empty()) {
      detached_->add(collective_);
    }
  }

  void synchronize() override {
    recorder(device_.index())
        .wait(current_stream(device_.index()), collective_->end, "for a collective",
              collective_->recording);
    collective_->tensors.clear();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    if (!waited_) {
      waited_ = true;
      recorder(device_.index()).wait_on_host(collective_->end, "a collective");
    }
    const bool ended = collective_->work->wait(timeout);
    if (ended) {
      synchronize();
    }
    return ended;
  }
  bool isCompleted() override { return collective_->work->isCompleted(); }
  bool isSuccess() const override { return collective_->work->isSuccess(); }
  std::exception_ptr exception() const override { return collective_->work->exception(); }

 private:
  const std::shared_ptr<Collective> collective_;
  const std::shared_ptr<Detached> detached_;
  const at::Device device_;
  bool waited_ = false;
};

// A device is of one rank, which is one thread.
std::exception_ptr& stream_error_of(at::Device device) {
  static std::array<std::exception_ptr, kDevices> errors;
  return errors.at(static_cast<size_t>(device.index()));
}

bool& memory_fails(at::Device device) {
  static std::array<bool, kDevices> fails;
  return fails.at(static_cast<size_t>(device.index()));
}

class DeviceBackend final : public StreamBackend {
 public:
  DeviceBackend(c10::intrusive_ptr<c10d::Backend> host, at::Device device)
      : StreamBackend(host->getRank(), host->getSize()),
        host_(std::move(host)),
        device_(device),
        recorder_(recorder(device.index())) {
    for (int& stream : streams_) {
      stream = recorder_.take_stream();
    }
  }
  ~DeviceBackend() override {
    for (const int stream : streams_) {
      recorder_.give_back_stream(stream);
    }
  }

  const std::string getBackendName() const override { return "recording"; }
  void abort() override { host_->abort(); }
  std::exception_ptr error() const override { return stream_error_of(device_); }
  // Asked in recordings alone: elsewhere the host waits itself.
  void give_up_when(std::function<std::string()> reason) override { reason_ = std::move(reason); }

  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return true; }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {  // NOLINT: c10d's type
    TORCH_CHECK(!memory_fails(device_), "a transport that gives no memory");
    at::Tensor tensor = at::empty({size}, options);
    recorder_.give(memory_of(tensor), this);
    has_given_memory_ = true;
    return tensor;
  }

  WorkPtr _allgather_base(at::Tensor& out, at::Tensor& in,
                          const c10d::AllgatherOptions& options) override {
    check_given("all_gather", {out, in});
    return issue("all_gather", {in}, {out},
                 [host = host_, host_out = on_host(out), host_in = on_host(in), options]() mutable {
                   return host->_allgather_base(host_out, host_in, options);
                 });
  }
  WorkPtr _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                               const c10d::ReduceScatterOptions& options) override {
    check_given("reduce_scatter", {out, in});
    return issue("reduce_scatter", {in}, {out},
                 [host = host_, host_out = on_host(out), host_in = on_host(in), options]() mutable {
                   return host->_reduce_scatter_base(host_out, host_in, options);
                 });
  }
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return issue("all_reduce", {}, tensors,
                 [host = host_, values = Tensors{on_host(tensors.at(0))}, options]() mutable {
                   return host->allreduce(values, options);
                 });
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return issue("broadcast", {}, tensors,
                 [host = host_, values = Tensors{on_host(tensors.at(0))}, options]() mutable {
                   return host->broadcast(values, options);
                 });
  }

 private:
  WorkPtr issue(const std::string& name, const Tensors& in, const Tensors& out,
                const std::function<WorkPtr()>& post) {
    detached_->drop_ended(recorder_);
    const int issuing = current_stream(device_.index());
    // In a recording the group's streams are none of its own: NCCL runs on the stream that issues.
    const int64_t recording = recorder_.recording_of(issuing);
    const int stream = recording != 0 ? issuing : streams_.at(issued_++ % streams_.size());
    recorder_.follow(stream, recorder_.mark(issuing));
    recorder_.work(stream, name, memories_of(in), memories_of(out));
    const auto collective = std::make_shared<Collective>();
    collective->work = post();
    collective->end = recorder_.mark(stream);
    collective->recording = recording;
    const auto finish = [name](const WorkPtr& work) {
      TORCH_CHECK(work->wait(kLimit), name, ": the other ranks did not come");
    };
    if (recording != 0) {
      finish_unless_given_up(name, *collective->work);
      keep_work(device_.index(), [post, finish] { finish(post()); });
    }
    for (const Tensors* tensors : {&in, &out}) {
      for (Memory* memory : memories_of(*tensors)) {
        memory->unfinished.push_back([work = collective->work, finish] { finish(work); });
      }
      collective->tensors.insert(collective->tensors.end(), tensors->begin(), tensors->end());
    }
    return c10::make_intrusive<DeviceWork>(collective, detached_, device_);
  }

  // As NCCL does with what it exchanges while it records.
  void finish_unless_given_up(const std::string& name, c10d::Work& work) const {
    constexpr std::chrono::milliseconds kSlice{20};
    const auto deadline = std::chrono::steady_clock::now() + kLimit;
    while (!work.wait(kSlice)) {
      const std::string reason = reason_ ? reason_() : "";
      TORCH_CHECK(reason.empty(), name, ": given up: ", reason);
      TORCH_CHECK(std::chrono::steady_clock::now() < deadline, name,
                  ": the other ranks did not come");
    }
  }

  // Once the group has given memory, all of its gathers and reductions take place there. Gathers of
  // slices and the sums over replicas are collectives of other groups, in this one's memory.
  void check_given(const std::string& name, const Tensors& tensors) const {
    if (has_given_memory_) {
      recorder_.check_given(name, memories_of(tensors), this);
    }
  }

  static std::vector<Memory*> memories_of(const Tensors& tensors) {
    std::vector<Memory*> memories;
    for (const at::Tensor& tensor : tensors) {
      if (Memory* memory = memory_of(tensor)) {
        memories.push_back(memory);
      }
    }
    return memories;
  }

  const c10::intrusive_ptr<c10d::Backend> host_;
  const at::Device device_;
  Recorder& recorder_;
  std::array<int, kAtOnce> streams_;
  size_t issued_ = 0;
  bool has_given_memory_ = false;
  std::function<std::string()> reason_;
  const std::shared_ptr<Detached> detached_ = std::make_shared<Detached>();
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_backend(c10::intrusive_ptr<c10d::Backend> host,
                                               at::Device device) {
  return c10::make_intrusive<DeviceBackend>(std::move(host), device);
}

void set_stream_error(at::Device device, std::exception_ptr error) {
  stream_error_of(device) = std::move(error);
}

void set_memory_fails(at::Device device, bool flag) { memory_fails(device) = flag; }

void run_ranks_on_devices(int size, const RankBody& body, CollectiveOrder order) {
  install();
  const auto job = std::make_shared<ThreadJob>(size);
  run_ranks(size, [&](const std::shared_ptr<World>& world) {
    const at::Device device(kType, static_cast<c10::DeviceIndex>(world->rank()));
    const c10::DeviceGuard guard(device);
    recorder(device.index()).start();
    const auto connect = [job, device, order](const std::string& key, int rank, int n) {
      auto host = make_thread_backend(job->group(key, n), rank);
      return order == CollectiveOrder::kOnHost ? make_staged_backend(std::move(host))
                                               : make_backend(std::move(host), device);
    };
    world->add_transport(device, connect, order);
    body(world);
  });
}

}  // namespace fsdp2::recording
