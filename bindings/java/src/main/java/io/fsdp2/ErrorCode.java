package io.fsdp2;

import io.fsdp2.internal.Raw;

/** Why a call failed. */
public enum ErrorCode {
  /** Something required is null. */
  NULL_ARGUMENT(Raw.FSDP2_E_NULL_ARGUMENT),
  /** An object that is needed is missing. */
  INVALID_HANDLE(Raw.FSDP2_E_INVALID_HANDLE),
  /** The object is closed. */
  STALE_HANDLE(Raw.FSDP2_E_STALE_HANDLE),
  /** An object of the wrong kind. */
  HANDLE_KIND(Raw.FSDP2_E_HANDLE_KIND),
  /** Options of another version. */
  STRUCT_SIZE(Raw.FSDP2_E_STRUCT_SIZE),
  /** An argument that does not fit. */
  INVALID_ARGUMENT(Raw.FSDP2_E_INVALID_ARGUMENT),
  /** Too little room for what comes out. */
  BUFFER_TOO_SMALL(Raw.FSDP2_E_BUFFER_TOO_SMALL),
  /** Another thread is inside this object. */
  BUSY(Raw.FSDP2_E_BUSY),
  /** Not possible now. */
  WRONG_STATE(Raw.FSDP2_E_WRONG_STATE),
  /** There is no such thing. */
  NOT_FOUND(Raw.FSDP2_E_NOT_FOUND),
  /** The library does not do this. */
  UNSUPPORTED(Raw.FSDP2_E_UNSUPPORTED),
  /** The library is of another version. */
  ABI_MISMATCH(Raw.FSDP2_E_ABI_MISMATCH),
  /** Files. */
  IO(Raw.FSDP2_E_IO),
  /** No memory, or no threads. */
  OUT_OF_MEMORY(Raw.FSDP2_E_OUT_OF_MEMORY),
  /** No memory on the device. */
  DEVICE_MEMORY(Raw.FSDP2_E_DEVICE_MEMORY),
  /** Communication between ranks. */
  COMM(Raw.FSDP2_E_COMM),
  /** A rank did not arrive in time. */
  TIMEOUT(Raw.FSDP2_E_TIMEOUT),
  /** Another rank failed first; the message is that rank's. */
  PEER_FAILED(Raw.FSDP2_E_PEER_FAILED),
  /** The device is gone. */
  DEVICE_LOST(Raw.FSDP2_E_DEVICE_LOST),
  /** A callback of the program failed; {@link FsdpException#getCause} is what it threw. */
  CALLBACK(Raw.FSDP2_E_CALLBACK),
  /** Reserved. */
  CANCELLED(Raw.FSDP2_E_CANCELLED),
  /** A file is not what it should be. */
  CORRUPT_DATA(Raw.FSDP2_E_CORRUPT_DATA),
  /** A loss or gradients with infinities or NaN. */
  NOT_FINITE(Raw.FSDP2_E_NOT_FINITE),
  /** A defect of the library. */
  INTERNAL(Raw.FSDP2_E_INTERNAL),
  /** Only comes out: what a later version of the library knows. */
  OTHER(Integer.MIN_VALUE);

  private final int number;

  ErrorCode(int number) {
    this.number = number;
  }

  int number() {
    return number;
  }

  static ErrorCode of(int number) {
    for (ErrorCode known : values()) {
      if (known.number == number) {
        return known;
      }
    }
    return OTHER;
  }
}
