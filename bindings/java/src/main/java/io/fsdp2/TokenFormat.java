package io.fsdp2;

import io.fsdp2.internal.Raw;

/** What a file of tokens looks like. */
public enum TokenFormat {
  /** Little-endian uint16 up to a vocabulary of 65536, uint32 above. */
  AUTO(Raw.FSDP2_TOKENS_AUTO),
  /** Text: each byte is a token, or it has those of a tokenizer. */
  BYTES(Raw.FSDP2_TOKENS_BYTES),
  /** Records in JSON lines, of which answers are labels; tokens as for texts. */
  RECORDS(Raw.FSDP2_TOKENS_RECORDS);

  private final int number;

  TokenFormat(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static TokenFormat of(int number) {
    for (TokenFormat known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("TokenFormat: no number " + number);
  }
}
