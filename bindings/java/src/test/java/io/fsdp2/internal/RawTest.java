package io.fsdp2.internal;

import io.fsdp2.FsdpException;

/** The library answers, and a failed call becomes an exception. */
public final class RawTest {
  private RawTest() {}

  public static void main(String[] arguments) {
    versionIsTheHeaders();
    missingDirectoryIsAnException();
    optionsHaveTheirDefaults();
    textComesBack();
    System.out.println("4 tests passed");
  }

  private static void versionIsTheHeaders() {
    expect(Raw.FSDP2_HEADER_VERSION, Raw.fsdp2_version());
    Raw.fsdp2_check_version(Raw.FSDP2_HEADER_VERSION);
  }

  private static void missingDirectoryIsAnException() {
    long[] module = {0};
    try {
      Raw.fsdp2_module_from_pretrained("/no/such/model", null, module);
      throw new AssertionError("no exception");
    } catch (FsdpException e) {
      expect(Raw.FSDP2_E_NOT_FOUND, e.status());
      expect("FSDP2_E_NOT_FOUND", e.statusName());
      expect("fsdp2_module_from_pretrained", e.function());
      expect(true, e.getMessage().contains("/no/such/model"));
    }
    expect(0L, module[0]);
  }

  private static void optionsHaveTheirDefaults() {
    try (fsdp2_adamw_options made = new fsdp2_adamw_options();
        fsdp2_adamw_options set = new fsdp2_adamw_options()) {
      set.setLr(7);
      Raw.fsdp2_adamw_options_init(set, set.getStruct_size());
      expect(1e-3, made.getLr());
      expect(0.9, made.getBeta1());
      expect(made.getLr(), set.getLr());
    }
    try (fsdp2_mesh_options options = new fsdp2_mesh_options()) {
      options.setRendezvous("thread://π");
      options.setDims(2, new long[] {2, 1}, new String[] {"ddp", "fsdp"});
      expect(2, options.getN_dims());
    }
  }

  private static void textComesBack() {
    long[] needed = {0};
    Raw.fsdp2_runtime_describe(null, 0, needed);
    byte[] text = new byte[(int) needed[0]];
    Raw.fsdp2_runtime_describe(text, text.length, needed);
    expect(true, Text.fromC(text).contains("version: "));
  }

  private static void expect(Object wanted, Object found) {
    if (!wanted.equals(found)) {
      throw new AssertionError("expected " + wanted + ", got " + found);
    }
  }
}
