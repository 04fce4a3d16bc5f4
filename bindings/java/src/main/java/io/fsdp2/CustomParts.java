package io.fsdp2;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** What was added to a custom module or a layer, which its objects and its forward share. */
final class CustomParts {
  /** The forward knows its own parameters and buffers by these names. */
  final List<String> parameters = new CopyOnWriteArrayList<>();

  final List<String> buffers = new CopyOnWriteArrayList<>();
  final List<Module> children = new CopyOnWriteArrayList<>();
  private final AtomicInteger users = new AtomicInteger();

  /** An object of the module or its forward needs the parts. */
  void join() {
    users.incrementAndGet();
  }

  /** It no longer does. The children end with the last one. */
  void leave() {
    if (users.decrementAndGet() == 0) {
      children.forEach(Module::close);
    }
  }
}
