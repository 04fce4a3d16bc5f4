package io.fsdp2;

import java.util.Optional;

/**
 * The videos of a batch, for the forward of a model that sees them.
 *
 * @param pixelValuesVideos f32 [patches, pixels of one]
 * @param videoGridThw i64 [videos,3]: the frames, rows and columns of the patches of each
 * @param secondPerGridTs f64 [videos]: the seconds from one frame to the next, for models that take
 *     them
 */
public record Videos(
    Tensor pixelValuesVideos, Tensor videoGridThw, Optional<Tensor> secondPerGridTs)
    implements AutoCloseable {
  @Override
  public void close() {
    pixelValuesVideos.close();
    videoGridThw.close();
    secondPerGridTs.ifPresent(Tensor::close);
  }
}
