package io.fsdp2;

import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_tokenizer_info;

/**
 * Text to tokens and back, by Hugging Face's library, which is in libfsdp2_tokenizers.so, or by
 * bytes. A tokenizer never changes: threads may share it.
 */
public final class Tokenizer extends Handle {
  private Tokenizer(long id) {
    super(id, Raw::fsdp2_tokenizer_destroy);
  }

  /** Opens a tokenizer.json, or that of a directory. */
  public static Tokenizer open(String path) {
    return new Tokenizer(make(out -> Raw.fsdp2_tokenizer_open(path, out)));
  }

  /** The tokenizer whose tokens are bytes, and 0 ends a text. */
  public static Tokenizer bytes() {
    return open(null);
  }

  /** What it is. */
  public TokenizerInfo getInfo() {
    try (fsdp2_tokenizer_info raw = new fsdp2_tokenizer_info()) {
      use(id -> Raw.fsdp2_tokenizer_get_info(id, raw));
      return TokenizerInfo.of(raw);
    }
  }

  /**
   * The tokens of a text.
   *
   * @param surround whether they have those that the tokenizer puts around a text, such as a
   *     beginning
   */
  public long[] encode(String text, boolean surround) {
    return get(
        id ->
            tokens(
                (to, room, needed) ->
                    Raw.fsdp2_tokenizer_encode(id, text, surround ? 1 : 0, to, room, needed)));
  }

  /** The tokens of a line of JSON, as a loader takes it for a record. */
  public long[] encodeRecord(String line) {
    return get(
        id ->
            tokens(
                (to, room, needed) ->
                    Raw.fsdp2_tokenizer_encode_record(id, line, to, room, needed)));
  }

  /**
   * The prompt of a record that is to be answered: what comes before its response, or before its
   * last message where that is the assistant's; a text is a prompt as a whole. Messages become what
   * the chat template makes of them where it opens an answer.
   *
   * @param visionModel the config.json of a model that sees images, or the directory with it; null:
   *     no record has any
   * @param directory what relative names of files count from; null: the process's own
   */
  public Prompt encodePrompt(String line, String visionModel, String directory) {
    long[] prompt = new long[1];
    long[][] seen = new long[5][1];
    use(
        id ->
            Raw.fsdp2_tokenizer_encode_prompt(
                id,
                line,
                visionModel,
                directory,
                prompt,
                seen[0],
                seen[1],
                seen[2],
                seen[3],
                seen[4]));
    int count = seen.length;
    while (count > 0 && seen[count - 1][0] == 0) {
      count--; // a model may take fewer
    }
    Tensor[] inputs = new Tensor[count];
    for (int i = 0; i < count; i++) {
      inputs[i] = seen[i][0] == 0 ? null : Tensor.adopt(seen[i][0]);
    }
    try (Tensor tokens = Tensor.adopt(prompt[0])) {
      return new Prompt(tokens.toLongs(), inputs);
    } catch (RuntimeException error) {
      new Prompt(new long[0], inputs).close();
      throw error;
    }
  }

  /**
   * The text of tokens.
   *
   * @param keepSpecial whether it has special tokens, too, such as the end of a text
   */
  public String decode(long[] tokens, boolean keepSpecial) {
    int keeps = keepSpecial ? 1 : 0;
    return get(
        id ->
            text(
                (to, room, needed) ->
                    Raw.fsdp2_tokenizer_decode(
                        id, tokens, tokens.length, keeps, to, room, needed)));
  }

  /** Another object for the same tokenizer, for a second owner. */
  public Tokenizer duplicate() {
    return get(id -> new Tokenizer(make(out -> Raw.fsdp2_tokenizer_duplicate(id, out))));
  }

  private interface TokensCall {
    void get(long[] tokens, long room, long[] needed);
  }

  private static long[] tokens(TokensCall call) {
    long[] needed = new long[1];
    call.get(null, 0, needed);
    long[] tokens = new long[Math.toIntExact(needed[0])];
    call.get(tokens, tokens.length, needed);
    return tokens;
  }
}
