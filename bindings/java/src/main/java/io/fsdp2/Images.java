package io.fsdp2;

/**
 * The images of a batch, for the forward of a model that sees them.
 *
 * @param pixelValues f32 [patches, pixels of one]
 * @param imageGridThw i64 [images,3]: the frames, rows and columns of the patches of each
 */
public record Images(Tensor pixelValues, Tensor imageGridThw) implements AutoCloseable {
  @Override
  public void close() {
    pixelValues.close();
    imageGridThw.close();
  }
}
