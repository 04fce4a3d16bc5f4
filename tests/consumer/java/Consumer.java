import io.fsdp2.Mesh;

/** Makes a mesh of one rank, and closes it. */
final class Consumer {
  private Consumer() {}

  public static void main(String[] arguments) {
    try (Mesh mesh = Mesh.create()) {
      if (mesh.rank() != 0) {
        throw new AssertionError("rank " + mesh.rank() + " of a job of one");
      }
    }
  }
}
