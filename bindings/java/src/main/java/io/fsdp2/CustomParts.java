package io.fsdp2;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** What was added to a custom module, which its objects and its forward share. */
final class CustomParts {
  /** The forward knows its own parameters and buffers by these names. */
  final List<String> parameters = new CopyOnWriteArrayList<>();

  final List<String> buffers = new CopyOnWriteArrayList<>();
  final List<Module> children = new CopyOnWriteArrayList<>();
}
