package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_evaluation;
import io.fsdp2.internal.fsdp2_generate_options;
import io.fsdp2.internal.fsdp2_infer_options;
import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.function.LongConsumer;

/** Forward-only work of a language model: scores, losses and text. */
abstract sealed class Inference extends Handle permits Module {
  /** What the library takes; it refuses more, for which there need be no room. */
  private static final int MOST_TOKENS = 1 << 24;

  Inference(long id, LongConsumer destroy) {
    super(id, destroy);
  }

  /** Scores labels with the library's defaults; see {@link #score(InferOptions, Tensor...)}. */
  public Scores score(Tensor... inputs) {
    return score(InferOptions.builder().build(), inputs);
  }

  /**
   * The log-probability of each label of a language model, without gradients and without ever
   * holding all logits. Ranks may have batches of different sizes, or of no rows. Dropout is on in
   * training mode. Collective.
   *
   * @param inputs as {@link Module#forward} takes them; without labels, each token's label is the
   *     next token
   */
  public Scores score(InferOptions options, Tensor... inputs) {
    long[] logProbs = new long[1];
    long[] entropies = new long[1];
    try (fsdp2_infer_options raw = options.toRaw()) {
      use(
          id ->
              Raw.fsdp2_module_score(
                  id, Tensor.ids(inputs), inputs.length, raw, logProbs, entropies));
    }
    Reference.reachabilityFence(inputs);
    return new Scores(Tensor.adopt(logProbs[0]), Tensor.adopt(entropies[0]));
  }

  /** Evaluates with the library's defaults; see {@link #evaluate(InferOptions, Tensor...)}. */
  public Evaluation evaluate(Tensor... inputs) {
    return evaluate(InferOptions.builder().build(), inputs);
  }

  /**
   * The loss of a batch over the labels of all ranks; otherwise as {@link #score(InferOptions,
   * Tensor...)}. The mean of several batches is that of their losses weighted by their labels.
   * Collective.
   */
  public Evaluation evaluate(InferOptions options, Tensor... inputs) {
    try (fsdp2_infer_options raw = options.toRaw();
        fsdp2_evaluation out = new fsdp2_evaluation()) {
      use(id -> Raw.fsdp2_module_evaluate(id, Tensor.ids(inputs), inputs.length, raw, out));
      Reference.reachabilityFence(inputs);
      return Evaluation.of(out);
    }
  }

  /**
   * Goes on with a text and returns the new tokens, a stop token included. Ranks that pass the same
   * prompt get the same tokens; otherwise as {@link #generateBatch}. Collective.
   */
  public long[] generate(long[] prompt, GenerateOptions options) {
    int most = Math.min(options.maxNewTokens(), MOST_TOKENS);
    long[] tokens = new long[Math.max(0, most)];
    long[] count = new long[1];
    try (fsdp2_generate_options raw = options.toRaw()) {
      use(
          id ->
              Raw.fsdp2_module_generate(
                  id, prompt, prompt.length, raw, tokens, tokens.length, count));
      Reference.reachabilityFence(options);
    }
    return Arrays.copyOf(tokens, Math.toIntExact(count[0]));
  }

  /**
   * Goes on with several texts at once, of any lengths above 0, and returns the new tokens of each.
   * If {@code firstRow} says where this rank's prompts begin, a prompt goes on alike whatever
   * prompts are beside it and whichever rank has it, as far as rounding does not decide.
   * Collective: ranks pass prompts of their own, or none.
   */
  public long[][] generateBatch(long[][] prompts, GenerateOptions options) {
    long[] lengths = TextRows.lengths(prompts);
    long[] tokens = new long[1];
    long[] counts = new long[1];
    try (Tensor rows = TextRows.pad(prompts);
        fsdp2_generate_options raw = options.toRaw()) {
      use(
          id ->
              Raw.fsdp2_module_generate_batch(
                  id, rows.id(), lengths, lengths.length, raw, tokens, counts));
      Reference.reachabilityFence(options);
    }
    try (Tensor made = Tensor.owned(tokens[0]);
        Tensor ends = Tensor.owned(counts[0])) {
      return TextRows.cut(made.toLongs(), ends.toLongs());
    }
  }
}
