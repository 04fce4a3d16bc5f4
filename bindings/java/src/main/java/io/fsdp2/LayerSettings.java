package io.fsdp2;

import java.util.Map;
import java.util.StringJoiner;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/** The settings of a layer as JSON, which is how C takes them. */
final class LayerSettings {
  private LayerSettings() {}

  static String toJson(Map<String, ?> settings) {
    StringJoiner members = new StringJoiner(",", "{", "}");
    settings.forEach((name, value) -> members.add(quoted(name) + ":" + toJson(name, value)));
    return members.toString();
  }

  private static String toJson(String name, Object value) {
    if (value == null || value instanceof Number || value instanceof Boolean) {
      return String.valueOf(value);
    } else if (value instanceof String text) {
      return quoted(text);
    } else if (value instanceof int[] numbers) {
      return toJson(IntStream.of(numbers).asLongStream());
    } else if (value instanceof long[] numbers) {
      return toJson(LongStream.of(numbers));
    }
    throw new IllegalArgumentException(
        name
            + ": expected a number, a boolean, a text or an array of whole numbers, found "
            + value.getClass().getName());
  }

  private static String toJson(LongStream numbers) {
    StringJoiner elements = new StringJoiner(",", "[", "]");
    numbers.forEach(number -> elements.add(Long.toString(number)));
    return elements.toString();
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter < ' ') {
        quoted.append(String.format("\\u%04x", (int) letter));
      } else {
        quoted.append(letter == '"' || letter == '\\' ? "\\" : "").append(letter);
      }
    }
    return quoted.append('"').toString();
  }
}
