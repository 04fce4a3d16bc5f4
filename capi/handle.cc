#include "capi/handle.h"

#include <thread>
#include <utility>

#include "core/base/error.h"

namespace fsdp2::capi {

namespace {

constexpr uint64_t kSlotMask = (uint64_t{1} << 24) - 1;
constexpr uint8_t kRetired = 0xff;  // in place of a kind
constexpr int kPatientSpins = 64;

uint64_t make_id(uint8_t kind, uint32_t generation, uint32_t slot) {
  return uint64_t{kind} << 56 | uint64_t{generation} << 24 | slot;
}

uint8_t kind_of(uint64_t id) { return static_cast<uint8_t>(id >> 56); }
uint32_t generation_of(uint64_t id) { return static_cast<uint32_t>(id >> 24); }
uint32_t slot_of(uint64_t id) { return static_cast<uint32_t>(id & kSlotMask); }

bool is_kind(uint8_t kind) {
  return kind >= static_cast<uint8_t>(Kind::kMesh) &&
         kind <= static_cast<uint8_t>(Kind::kTokenizer);
}

}  // namespace

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kMesh:
      return "mesh";
    case Kind::kTensor:
      return "tensor";
    case Kind::kModule:
      return "module";
    case Kind::kShard:
      return "shard";
    case Kind::kOptimizer:
      return "optimizer";
    case Kind::kLoader:
      return "loader";
    case Kind::kStep:
      return "step";
    case Kind::kState:
      return "state";
    case Kind::kScope:
      return "scope";
    case Kind::kGenerator:
      return "generator";
    case Kind::kTokenizer:
      return "tokenizer";
  }
  return "object";
}

HandleTable& HandleTable::global() {
  static HandleTable& table = *new HandleTable;
  return table;
}

HandleTable::~HandleTable() {
  for (auto& chunk : chunks_) {
    delete chunk.load();
  }
}

HandleTable::Slot* HandleTable::find_slot(uint64_t id) const {
  const uint32_t slot = slot_of(id);
  if (slot >= used_.load(std::memory_order_acquire)) {
    return nullptr;
  }
  Chunk* chunk = chunks_[slot / kChunkSlots].load(std::memory_order_acquire);
  return &(*chunk)[slot % kChunkSlots];
}

// Under mutex_.
uint32_t HandleTable::take_slot() {
  if (first_free_ != 0) {
    const uint32_t slot = first_free_ - 1;
    first_free_ = find_slot(slot)->next_free.load();
    return slot;
  }
  const uint32_t slot = used_.load();
  FSDP2_CHECK(slot < kChunkSlots * kChunks, Code::kOutOfMemory,
              "{} handles have been given out and not destroyed: there are no more", slot);
  auto& chunk = chunks_[slot / kChunkSlots];
  if (chunk.load() == nullptr) {
    chunk.store(new Chunk, std::memory_order_release);
  }
  (*chunk.load())[slot % kChunkSlots].identity.store(make_id(0, first_generation_, slot));
  used_.store(slot + 1, std::memory_order_release);
  return slot;
}

uint64_t HandleTable::insert(Kind kind, std::shared_ptr<void> object) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t index = take_slot();
  Slot& slot = *find_slot(index);
  slot.object = std::move(object);
  const uint64_t id =
      make_id(static_cast<uint8_t>(kind), generation_of(slot.identity.load()), index);
  ++live_;
  slot.identity.store(id);
  return id;
}

std::shared_ptr<void> HandleTable::pin(uint64_t id, Kind kind) {
  Slot* slot = kind_of(id) == static_cast<uint8_t>(kind) ? find_slot(id) : nullptr;
  if (slot != nullptr) {
    // Both operations and remove's are sequentially consistent: either remove sees this pin, or
    // this sees remove's new identity.
    slot->pins.fetch_add(1);
    if (slot->identity.load() == id) {
      std::shared_ptr<void> object = slot->object;
      slot->pins.fetch_sub(1);
      return object;
    }
    slot->pins.fetch_sub(1);
  }
  refuse(id, kind);
}

std::shared_ptr<void> HandleTable::remove(uint64_t id, Kind kind) {
  std::shared_ptr<void> object = remove_if_there(id, kind);
  if (object == nullptr) {
    refuse(id, kind);
  }
  return object;
}

std::shared_ptr<void> HandleTable::remove_if_there(uint64_t id, Kind kind) noexcept {
  Slot* slot = kind_of(id) == static_cast<uint8_t>(kind) ? find_slot(id) : nullptr;
  const bool last = generation_of(id) == kLastGeneration;
  const uint64_t next = last ? make_id(kRetired, kLastGeneration, slot_of(id))
                             : make_id(0, generation_of(id) + 1, slot_of(id));
  uint64_t expected = id;
  if (slot == nullptr || !slot->identity.compare_exchange_strong(expected, next)) {
    return nullptr;
  }
  for (int spins = 0; slot->pins.load() != 0; ++spins) {
    if (spins >= kPatientSpins) {
      std::this_thread::yield();
    }
  }
  std::shared_ptr<void> object = std::move(slot->object);
  slot->object.reset();
  --live_;
  if (!last) {
    std::lock_guard<std::mutex> lock(mutex_);
    slot->next_free.store(first_free_);
    first_free_ = slot_of(id) + 1;
  }
  return object;
}

void HandleTable::refuse(uint64_t id, Kind expected) const {
  const char* wanted = kind_name(expected);
  FSDP2_CHECK(id != 0, Code::kInvalidHandle, "expected a handle of kind {}, found the null handle",
              wanted);
  const Slot* slot = find_slot(id);
  const uint64_t identity = slot == nullptr ? 0 : slot->identity.load();
  const bool was_given_out =
      slot != nullptr && is_kind(kind_of(id)) && generation_of(id) >= first_generation_ &&
      (identity == id || generation_of(id) < generation_of(identity) ||
       (generation_of(id) == generation_of(identity) && kind_of(identity) == kRetired));
  FSDP2_CHECK(was_given_out, Code::kInvalidHandle,
              "expected a handle of kind {}, found 0x{:016x}, which this library never gave out",
              wanted, id);
  const auto found = static_cast<Kind>(kind_of(id));
  FSDP2_CHECK(found == expected, Code::kHandleKind,
              "expected a handle of kind {}, found one of kind {}", wanted, kind_name(found));
  fail(Code::kStaleHandle, "expected a handle of kind {}, found one that has been destroyed",
       wanted);
}

}  // namespace fsdp2::capi
