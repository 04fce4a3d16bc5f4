import io.fsdp2.Module;
import io.fsdp2.Tensor;
import java.util.List;
import java.util.function.Supplier;

/**
 * What a call costs. Prints for each call the ns of one in the fastest batch, of one with the
 * destruction of its result, and the latter's mean over all batches.
 */
final class Calls {
  private static final int CALLS_IN_A_BATCH = 1000;
  private static final int HELD = 50; // results, before they are destroyed
  private static final float[] ELEMENTS = {1, 2, 3, 4};

  private Calls() {}

  private static void measure(String name, int batches, Supplier<Tensor> call) {
    double fastest = Double.POSITIVE_INFINITY;
    double fastestOfBoth = Double.POSITIVE_INFINITY;
    double all = 0;
    Tensor[] held = new Tensor[HELD];
    for (int batch = 0; batch < batches; batch++) {
      double calls = 0;
      double both = 0;
      for (int done = 0; done < CALLS_IN_A_BATCH; done += HELD) {
        long start = System.nanoTime();
        for (int i = 0; i < HELD; i++) {
          held[i] = call.get();
        }
        calls += (double) (System.nanoTime() - start) / CALLS_IN_A_BATCH;
        for (Tensor result : held) {
          result.close();
        }
        both += (double) (System.nanoTime() - start) / CALLS_IN_A_BATCH;
      }
      fastest = Math.min(fastest, calls);
      fastestOfBoth = Math.min(fastestOfBoth, both);
      all += both / batches;
    }
    System.out.printf("%s %.1f %.1f %.1f%n", name, fastest, fastestOfBoth, all);
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
