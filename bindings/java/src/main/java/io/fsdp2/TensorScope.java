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
  private static final ThreadLocal<TensorScope> INNERMOST = new ThreadLocal<>();

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
    this.outer = innermost();
    this.gradients = gradients && recordsGradients();
    INNERMOST.set(this);
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
    TensorScope scope = INNERMOST.get();
    while (scope != null && scope.closed) {
      scope = scope.outer;
    }
    return scope;
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
    TensorScope scope = innermost();
    return scope == null || scope.gradients;
  }

  /**
   * Moves a tensor of this scope into the next outer one, or out of all scopes. A tensor that is in
   * no scope, or in another, stays where it is. Returns the tensor.
   */
  public Tensor keep(Tensor tensor) {
    if (tensor.scope() == this) {
      TensorScope target = outer;
      while (target != null && target.closed) {
        target = target.outer;
      }
      tensor.moveTo(target);
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
    if (isOpenHere()) {
      for (TensorScope inner = INNERMOST.get(); inner != this; inner = inner.outer) {
        inner.end();
      }
      INNERMOST.set(this);
    }
    end();
    TensorScope open = innermost();
    if (open == null) {
      INNERMOST.remove();
    } else {
      INNERMOST.set(open);
    }
  }

  private boolean isOpenHere() {
    TensorScope scope = INNERMOST.get();
    while (scope != null && scope != this) {
      scope = scope.outer;
    }
    return scope != null;
  }

  private synchronized void end() {
    closed = true;
    if (library != null) {
      library.close();
    }
  }
}
