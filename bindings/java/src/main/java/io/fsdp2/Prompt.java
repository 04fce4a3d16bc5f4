package io.fsdp2;

/**
 * What a model is given to answer a record.
 *
 * @param tokens its tokens
 * @param visionInputs its images and videos, as {@link GenerateOptions} takes them; none where it
 *     has none
 */
public record Prompt(long[] tokens, Tensor[] visionInputs) implements AutoCloseable {
  @Override
  public void close() {
    for (Tensor input : visionInputs) {
      if (input != null) {
        input.close();
      }
    }
  }
}
