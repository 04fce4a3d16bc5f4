package io.fsdp2;

import io.fsdp2.internal.Raw;

/** Which part of a parameter is asked for. */
public enum ParameterPart {
  /** This rank's rows, sharing their memory. */
  LOCAL(Raw.FSDP2_PARAMETER_LOCAL),
  /** The gradient of this rank's rows. */
  LOCAL_GRAD(Raw.FSDP2_PARAMETER_LOCAL_GRAD),
  /** A copy of the gathered parameter; collective. */
  FULL(Raw.FSDP2_PARAMETER_FULL),
  /** A copy of the gathered gradient; collective. */
  FULL_GRAD(Raw.FSDP2_PARAMETER_FULL_GRAD);

  private final int number;

  ParameterPart(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static ParameterPart of(int number) {
    for (ParameterPart known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    throw new IllegalArgumentException("ParameterPart: no number " + number);
  }
}
