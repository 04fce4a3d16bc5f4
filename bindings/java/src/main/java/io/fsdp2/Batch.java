package io.fsdp2;

/**
 * A micro batch of a language model.
 *
 * @param tokens i64 [B,S]
 * @param labels i64 [B,S]: the tokens that follow
 */
public record Batch(Tensor tokens, Tensor labels) implements AutoCloseable {
  @Override
  public void close() {
    tokens.close();
    labels.close();
  }
}
