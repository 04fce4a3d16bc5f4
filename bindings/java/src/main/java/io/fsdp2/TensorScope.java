package io.fsdp2;

import io.fsdp2.internal.Raw;

/**
 * Tensors that end together, such as those that one forward makes:
 *
 * <pre>{@code
 * try (TensorScope scope = TensorScope.open()) {
 *   Tensor hidden = x.matmul(weight).gelu();
 *   return scope.keep(hidden.sum());
 * }
 * }</pre>
 *
 * <p>Whatever tensors the library makes for this thread belong to the innermost scope that is open
 * on it. A scope is opened and closed on one thread.
 */
public final class TensorScope implements AutoCloseable {
  private static final ThreadLocal<OpenScopes> OPEN = ThreadLocal.withInitial(OpenScopes::new);

  /** Those of a thread, each with the one around it. */
  private static final class OpenScopes {
    private final Thread thread = Thread.currentThread();
    private TensorScope innermost;
  }

  private final OpenScopes open;
  private final TensorScope outer;
  private final boolean gradients;
  private volatile boolean closed;

  /** The library's scope, once there is something to go into it: many callbacks make nothing. */
  private volatile LibraryScope library;

  private static final class LibraryScope extends Handle {
    LibraryScope() {
      super(make(Raw::fsdp2_scope_create), Raw::fsdp2_scope_destroy);
    }
  }

  private TensorScope(boolean gradients) {
    this.open = OPEN.get();
    this.outer = firstOpen(open.innermost);
    this.gradients = gradients && recordsGradients(outer);
    open.innermost = this;
  }

  /** Opens a scope within the one that is open, if any. */
  public static TensorScope open() {
    return new TensorScope(true);
  }

  /** Opens a scope in which neither operators nor forwards record gradients. */
  public static TensorScope openWithoutGradients() {
    return new TensorScope(false);
  }

  static TensorScope innermost() {
    return firstOpen(OPEN.get().innermost);
  }

  private static TensorScope firstOpen(TensorScope scope) {
    TensorScope found = scope;
    while (found != null && found.closed) {
      found = found.outer;
    }
    return found;
  }

  /** The caller keeps this object alive until its call has returned. */
  long id() {
    LibraryScope made = library;
    return made != null ? made.id() : makeLibraryScope().id();
  }

  static long id(TensorScope scope) {
    return scope == null ? 0 : scope.id();
  }

  private synchronized LibraryScope makeLibraryScope() {
    if (library == null) {
      library = new LibraryScope();
      if (closed) {
        library.close(); // calls of it fail as those of any closed object
      }
    }
    return library;
  }

  boolean isOpen() {
    return !closed;
  }

  static boolean recordsGradients() {
    return recordsGradients(innermost());
  }

  /** Whether calls record gradients whose innermost scope is this one. */
  static boolean recordsGradients(TensorScope scope) {
    return scope == null || scope.gradients;
  }

  /**
   * Moves a tensor of this scope into the next outer one, or out of all scopes. A tensor that is in
   * no scope, or in another, stays where it is. Returns the tensor.
   */
  public Tensor keep(Tensor tensor) {
    if (tensor.scope() == this) {
      tensor.moveTo(firstOpen(outer));
    }
    return tensor;
  }

  /** Moves a tensor into this scope. Returns the tensor. */
  public Tensor add(Tensor tensor) {
    tensor.moveTo(this);
    return tensor;
  }

  /** Ends all tensors of this scope, and of scopes within it that are still open. */
  @Override
  public void close() {
    if (open.thread != Thread.currentThread()) {
      end(); // and its own thread passes over it
      return;
    }
    if (isOpenHere()) {
      for (TensorScope inner = open.innermost; inner != this; inner = inner.outer) {
        inner.end();
      }
      open.innermost = this;
    }
    end();
    open.innermost = firstOpen(open.innermost);
  }

  private boolean isOpenHere() {
    TensorScope scope = open.innermost;
    while (scope != null && scope != this) {
      scope = scope.outer;
    }
    return scope != null;
  }

  /** This or {@link #makeLibraryScope} sees what the other writes, and ends the library's scope. */
  private void end() {
    closed = true;
    LibraryScope made = library;
    if (made != null) {
      made.close();
    }
  }
}
