package io.fsdp2;

/**
 * What a language model says of labels: [B,S], or [B,S-1] if each token's label is the next token.
 * 0 for labels of -100.
 *
 * @param logProbs f32: the log-probability of each label, in nats
 * @param entropies f32: the entropy of the distribution in its place, in nats
 */
public record Scores(Tensor logProbs, Tensor entropies) implements AutoCloseable {
  @Override
  public void close() {
    logProbs.close();
    entropies.close();
  }
}
