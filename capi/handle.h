// Ids for the objects behind the C ABI. An id is never given out twice, so a handle that is null,
// made up, destroyed or of another kind is always found out and never followed.
//
//   bits 56..63 kind     24..55 generation     0..23 slot
//
// Every lookup pins its slot, compares the slot's identity with the id and only then copies the
// object's pointer; removal first changes the identity and then waits for the pins of that copying
// (nanoseconds). So the object outlives every call that found it, whoever destroys its handle.
//
// Slots live in chunks that are never freed, and a slot whose generations are used up is retired:
// any 64 bits at all can be looked up. All of it may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

namespace fsdp2::capi {

enum class Kind : uint8_t {
  kMesh = 1,
  kTensor,
  kModule,
  kShard,
  kOptimizer,
  kLoader,
  kStep,
  kState,
  kScope,
  kGenerator,
  kTokenizer,
};

const char* kind_name(Kind kind);

class HandleTable {
 public:
  static constexpr uint32_t kLastGeneration = UINT32_MAX;

  // first_generation: that of a slot's first id; tests start near the end.
  explicit HandleTable(uint32_t first_generation = 1) : first_generation_(first_generation) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable();

  // The process's table. Never destroyed.
  static HandleTable& global();

  // kOutOfMemory if there are no slots left.
  uint64_t insert(Kind kind, std::shared_ptr<void> object);

  // Errors: kInvalidHandle, kHandleKind, kStaleHandle, naming what was expected and found.
  std::shared_ptr<void> pin(uint64_t id, Kind kind);

  // Takes the object out; the caller lets go of it. Errors as pin's.
  std::shared_ptr<void> remove(uint64_t id, Kind kind);
  // As remove; null if there is no such object.
  std::shared_ptr<void> remove_if_there(uint64_t id, Kind kind) noexcept;

  int64_t live() const { return live_.load(); }

 private:
  struct Slot {
    // The id while it is alive; otherwise the generation to give out next, under kind 0, or
    // kRetired.
    std::atomic<uint64_t> identity{0};
    std::atomic<uint32_t> pins{0};
    std::atomic<uint32_t> next_free{0};  // slot + 1; under mutex_
    std::shared_ptr<void> object;        // guarded by identity and pins, as said above
  };
  static constexpr uint32_t kChunkSlots = 1u << 12;
  static constexpr uint32_t kChunks = 1u << 12;
  using Chunk = std::array<Slot, kChunkSlots>;

  Slot* find_slot(uint64_t id) const;
  uint32_t take_slot();
  [[noreturn]] void refuse(uint64_t id, Kind expected) const;

  const uint32_t first_generation_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  std::atomic<uint32_t> used_{0};  // slots ever taken
  std::atomic<int64_t> live_{0};
  std::mutex mutex_;
  uint32_t first_free_ = 0;  // slot + 1; 0: none
};

}  // namespace fsdp2::capi
