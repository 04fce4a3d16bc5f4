// Whether what a device is told to do has an order, without a device: what each stream has been
// given, who used which memory where, and who waited for whom.
//
// Each stream has a vector clock (Mattern 1989): a tick of its own for each piece of work, and of
// each other stream the last tick that it comes after. Memory remembers its last write and what has
// read it since. Work that does not come after the write that it needs is a problem, and so is a
// write that does not come after the last write and all reads since, an allocation that gets memory
// which another stream may still use, and the use of memory that is gone.
//
// Memory is as CUDA's caching allocator has it: it belongs to the stream that was current when it
// was allocated, and once freed it may become any later allocation of that stream, at once.
//
// Any thread; one device each.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fsdp2::recording {

// The ticks of all streams that a place in one of them comes after, its own included.
using Clock = std::vector<int64_t>;

// What somebody must end in reality before the memory may be touched: a collective that other ranks
// take part in. The device's work is done at once otherwise.
using Unfinished = std::function<void()>;

struct Use {
  int stream;
  int64_t tick;
  std::string work;
};

struct Memory {
  int64_t number;
  size_t bytes;
  int stream;  // that it belongs to
  std::optional<Use> written;
  std::map<int, Use> read;  // since then, the last one of each stream
  std::vector<Unfinished> unfinished;
  bool is_of_graph = false;     // allocated while work was recorded: never anybody else's
  const void* group = nullptr;  // that has given it; null: it is the allocator's
};

// What work that was recorded reads and writes, by the numbers of memory that is there.
struct RecordedUses {
  std::set<int64_t> reads;
  std::set<int64_t> writes;
};

// A wait of one stream for others.
struct StreamWait {
  std::string what;
  Clock seen;              // by what it waited for
  bool new_to_it = false;  // there was something that the stream did not come after already
  bool relied_on = false;  // the stream was given something, or somebody waited for it, before
                           // another wait made this one superfluous
};

class Recorder {
 public:
  static constexpr int kComputeStream = 0;

  // Begins anew: nothing is under way, nobody has waited. ignored_wait: the number of a wait that
  // is to have no effect.
  void start(std::optional<size_t> ignored_wait = std::nullopt);

  int take_stream();
  void give_back_stream(int stream);

  Memory* allocate(int stream, size_t bytes);
  void free(Memory* memory);
  // A piece of work. Ends in reality what others have left unfinished there.
  void work(int stream, const std::string& name, const std::vector<Memory*>& reads,
            const std::vector<Memory*>& writes);

  Clock mark(int stream);  // behind all that it has been given
  // The order that core asks for; each has the next number. recording: that the mark was made in.
  void wait(int stream, const Clock& mark, const std::string& what, int64_t recording);
  // The order that a transport keeps by itself.
  void follow(int stream, const Clock& mark);
  // The host waits for that, and everything that it gives the device from here on comes after.
  void wait_on_host(const Clock& mark, const std::string& what);
  // What the host gets from the stream's last work, once it has waited for that.
  void deliver(int stream, std::function<void()> values);
  // The host has been told that this has ended, and has not waited.
  void see_end(const Clock& mark);

  // From here on work is recorded as a graph, from this stream on and from those that it lets
  // follow it, as CUDA does (core/device/device_graphs.h). What a graph cannot hold is an error:
  // the host's waits, and copies from and to its memory, throw; of the rest end_recording() tells.
  void begin_recording(int stream);
  struct Ended {
    RecordedUses uses;
    std::vector<std::string> problems;
  };
  Ended end_recording();
  // 0: none. The number of the recording that a stream is part of, or of the one under way.
  int64_t recording_of(int stream) const;
  int64_t recording() const;
  // Throws while work is recorded.
  void refuse_in_recording(const std::string& what) const;
  // Memory that a group of ranks has given, as NCCL gives what it has registered.
  void give(Memory* memory, const void* group);
  int64_t given_bytes() const;  // in use now, of all groups
  // A problem if one of these, of a collective of the group, is not such memory.
  void check_given(const std::string& work, const std::vector<Memory*>& memories,
                   const void* group);

  // The stream is given what was recorded.
  void replay(int stream, const RecordedUses& uses);

  std::vector<std::string> problems() const;
  std::vector<std::string> host_waits() const;
  std::vector<StreamWait> waits() const;
  int64_t live_bytes() const;
  int64_t peak_bytes() const;  // since start or restart_peak
  void restart_peak();

 private:
  struct Delivery {
    int stream;
    int64_t tick;
    std::function<void()> values;
  };
  struct Stream {
    Clock clock;
    std::vector<Memory> freed;       // that has belonged to it, and uses of it that may go on
    std::vector<size_t> open_waits;  // nothing has relied on them yet
  };

  struct Recording {
    int64_t number;
    int origin;
    std::set<int> streams;
    int64_t first_memory;                     // allocated in it
    std::map<int64_t, Memory> memory_before;  // uses of what was there, which are none of a graph's
    Ended ended;
  };

  int64_t tick(int stream);
  void see_in_recording(int stream, const std::string& name, const std::vector<Memory*>& reads,
                        const std::vector<Memory*>& writes);
  void see_wait_in_recording(int stream, const std::string& what, int64_t recording);
  std::vector<Memory*> alive(const std::set<int64_t>& numbers) const;
  void join(int stream, const Clock& mark);
  void rely_on_waits(int stream);
  bool comes_after(int stream, const Use& use) const;
  void check(int stream, const std::string& work, const char* does, const Memory& memory,
             const Use& use, const char* did);
  void check_freed(int stream);
  void deliver_ended();

  mutable std::mutex mutex_;
  std::vector<Stream> streams_{1};
  std::vector<int> spare_streams_;
  Clock host_;
  std::vector<Delivery> deliveries_;
  int64_t memories_ = 0;
  int64_t live_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  std::map<Memory*, std::unique_ptr<Memory>> alive_;
  std::optional<Recording> recording_;
  int64_t recordings_ = 0;
  std::optional<size_t> ignored_wait_;
  std::vector<StreamWait> waits_;
  std::vector<std::string> problems_;
  std::vector<std::string> host_waits_;
};

}  // namespace fsdp2::recording
