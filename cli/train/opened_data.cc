#include "cli/train/opened_data.h"

#include "client/objects.h"

namespace fsdp2::cli {

void open_loader(const config::TrainOptions& options, const Mesh& mesh, int64_t vocab_size,
                 Loader* out) {
  try {
    client::open_data(options, mesh.get(), vocab_size, out);
  } catch (const Failure& failure) {
    if (failure.status() != FSDP2_E_INVALID_ARGUMENT && failure.status() != FSDP2_E_CORRUPT_DATA) {
      throw;
    }
    throw UnfitData(failure.what(), failure.status());
  }
}

}  // namespace fsdp2::cli
