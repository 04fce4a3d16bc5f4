// Random numbers in work that a device records (core/device/device_graphs.h). The host draws them,
// and a replay would get those of the recording again: so each is a place in the device's memory,
// which is filled anew before a replay.
//
//   RecordedDraws draws(generator, device);
//   {
//     RecordedDraws::Scope scope(draws);
//     ...                      // record: draw_keys of this generator reads the places
//     scope.end();
//   }
//   draws.refill();            // as many numbers as a forward draws, in its order
//   graph.replay();
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdp2::nn {

class RecordedDraws {
 public:
  // generator: of the CPU; none: nothing is drawn from one.
  RecordedDraws(std::optional<at::Generator> generator, at::Device device);

  // From its beginning to its end the device records. The generator is left as it was found: by
  // end(), which throws where that fails, or by the destructor of what an exception has ended,
  // which can only log it.
  class Scope {
   public:
    explicit Scope(RecordedDraws& draws);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    void end();

   private:
    void forget() noexcept;

    RecordedDraws& draws_;
    at::Tensor state_before_;
    bool has_ended_ = false;
  };

  // Draws new numbers from the generator, and fills the places behind what the device's current
  // stream has been given so far.
  void refill();

  // The draws whose scope is open for the generator, in any thread; null if there is none.
  static RecordedDraws* of(const at::Generator& generator);
  // The place of the generator's next number, which is drawn: int32, on the device. A forward that
  // is computed again, from the same state of the generator, gets the same place. Error:
  // kUnsupported beyond kMostNumbers.
  at::Tensor next();

 private:
  static constexpr int64_t kMostNumbers = 4096;

  std::optional<at::Generator> generator_;
  at::Device device_;
  at::Tensor numbers_;                       // [kMostNumbers] int32; undefined without generator
  std::map<std::string, int64_t> by_state_;  // the generator's, before the number was drawn
};

// Whether work of the device is being recorded, by whichever thread.
bool is_recording(at::Device device);

// What a forward that is computed again needs to know of a device's own generator, whose state
// cannot be read during a recording: notes that some forward has drawn from one, and whether any
// has.
void note_device_draw();
bool has_drawn_on_device();

}  // namespace fsdp2::nn
