package io.fsdp2;

import io.fsdp2.internal.Raw;

/** The type of a tensor's elements. */
public enum DType {
  /** Only comes out: a type that has no name here. */
  OTHER(Raw.FSDP2_DTYPE_OTHER),
  /** In options: leave it as it is. */
  KEEP(Raw.FSDP2_DTYPE_KEEP),
  /** 32-bit floating point: {@code float}. */
  F32(Raw.FSDP2_DTYPE_F32),
  /** 64-bit floating point: {@code double}. */
  F64(Raw.FSDP2_DTYPE_F64),
  /** 16-bit floating point. */
  F16(Raw.FSDP2_DTYPE_F16),
  /** 16-bit floating point with the exponent of 32 bits. */
  BF16(Raw.FSDP2_DTYPE_BF16),
  /** 64-bit integer: {@code long}. */
  I64(Raw.FSDP2_DTYPE_I64),
  /** 32-bit integer: {@code int}. */
  I32(Raw.FSDP2_DTYPE_I32),
  /** 16-bit integer: {@code short}. */
  I16(Raw.FSDP2_DTYPE_I16),
  /** 8-bit integer: {@code byte}. */
  I8(Raw.FSDP2_DTYPE_I8),
  /** Unsigned 8-bit integer. */
  U8(Raw.FSDP2_DTYPE_U8),
  /** True or false, in a byte. */
  BOOL(Raw.FSDP2_DTYPE_BOOL);

  private final int number;

  DType(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static DType of(int number) {
    for (DType known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
