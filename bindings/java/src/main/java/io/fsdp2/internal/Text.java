package io.fsdp2.internal;

import static java.nio.charset.StandardCharsets.UTF_8;

/** Text as C wants it: UTF-8 with a NUL at the end. */
final class Text {
  private Text() {}

  static byte[] toC(String text) {
    return text == null ? null : toC(new String[] {text});
  }

  /** One after the other, each with its NUL. */
  static byte[] toC(String[] texts) {
    if (texts == null) {
      return null;
    }
    StringBuilder joined = new StringBuilder();
    for (String text : texts) {
      if (text.indexOf('\0') >= 0) {
        throw new IllegalArgumentException("text with a NUL in it: " + text.replace('\0', '?'));
      }
      joined.append(text).append('\0');
    }
    return joined.toString().getBytes(UTF_8);
  }

  static String fromC(byte[] bytes) {
    return new String(bytes, UTF_8);
  }
}
