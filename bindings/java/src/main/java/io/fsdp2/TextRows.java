package io.fsdp2;

import java.util.Arrays;

/** Texts of tokens as the rows of tensors. */
final class TextRows {
  private TextRows() {}

  static long[] lengths(long[][] rows) {
    return Arrays.stream(rows).mapToLong(row -> row.length).toArray();
  }

  /** [B,S] i64: what is behind the end of a row does not count. */
  static Tensor pad(long[][] rows) {
    int longest = Arrays.stream(rows).mapToInt(row -> row.length).reduce(1, Math::max);
    long[] tokens = new long[Math.multiplyExact(rows.length, longest)];
    for (int i = 0; i < rows.length; i++) {
      System.arraycopy(rows[i], 0, tokens, i * longest, rows[i].length);
    }
    return Tensor.of(tokens, rows.length, longest);
  }

  /** The first lengths[b] elements of each row of tokens [B,S]. */
  static long[][] cut(long[] tokens, long[] lengths) {
    int width = lengths.length == 0 ? 0 : tokens.length / lengths.length;
    long[][] rows = new long[lengths.length][];
    for (int i = 0; i < rows.length; i++) {
      rows[i] = Arrays.copyOfRange(tokens, i * width, i * width + Math.toIntExact(lengths[i]));
    }
    return rows;
  }
}
