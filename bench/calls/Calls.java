import io.fsdp2.Module;
import io.fsdp2.Tensor;
import java.util.List;
import java.util.function.Supplier;

/** What a call costs. Prints for each call the ns of the fastest batch, and of all. */
final class Calls {
  private static final int CALLS_IN_A_BATCH = 1000;
  private static final float[] ELEMENTS = {1, 2, 3, 4};

  private Calls() {}

  private static void measure(String name, int batches, Supplier<Tensor> call) {
    double fastest = Double.POSITIVE_INFINITY;
    double all = 0;
    for (int batch = 0; batch < batches; batch++) {
      long start = System.nanoTime();
      for (int i = 0; i < CALLS_IN_A_BATCH; i++) {
        call.get().close();
      }
      double taken = (double) (System.nanoTime() - start) / CALLS_IN_A_BATCH;
      fastest = Math.min(fastest, taken);
      all += taken / batches;
    }
    System.out.printf("%s %.1f %.1f%n", name, fastest, all);
  }

  public static void main(String[] arguments) {
    int batches = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 100;
    try (Tensor x = Tensor.of(ELEMENTS);
        Module same = Module.createCustom("Same", (context, inputs) -> List.of(inputs))) {
      measure("tensor", batches, () -> Tensor.of(ELEMENTS));
      measure("operator", batches, () -> x.add(x));
      measure("forward", batches, () -> same.forward(x));
    }
  }
}
