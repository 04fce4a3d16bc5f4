import io.fsdp2.AdamwOptions;
import io.fsdp2.DType;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.Optimizer;
import io.fsdp2.Shard;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import io.fsdp2.Tensor;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.util.Locale;

/**
 * Trains on data that the program makes: the library reads them where they lie.
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Data MODEL_DIRECTORY STEPS</pre>
 */
public final class Data {
  private Data() {}

  private static final int ROWS = 8;
  private static final int LENGTH = 32;
  private static final int VOCABULARY = 384;

  private static ByteBuffer memory(int rows) {
    return ByteBuffer.allocateDirect(rows * LENGTH * Long.BYTES).order(ByteOrder.nativeOrder());
  }

  /** Writes a rank's rows of a step's batch: each token is followed by the one that is 5 more. */
  private static void fill(LongBuffer tokens, LongBuffer labels, int step, int firstRow) {
    for (int i = 0; i < tokens.limit(); i++) {
      int row = firstRow + i / LENGTH;
      int column = i % LENGTH;
      int token = (31 * row + 17 * step + 5 * column) % VOCABULARY;
      tokens.put(i, token);
      labels.put(i, (token + 5) % VOCABULARY);
    }
  }

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Data MODEL_DIRECTORY STEPS");
      System.exit(2);
    }
    AdamwOptions adamw = AdamwOptions.builder().lr(3e-3).build();
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromPretrained(arguments[0]);
        Shard shard = Shard.create(module, mesh);
        Optimizer optimizer = Optimizer.createAdamw(shard, adamw);
        Step step = Step.create(shard, optimizer)) {
      int rows = ROWS / mesh.worldSize();
      ByteBuffer tokens = memory(rows);
      ByteBuffer labels = memory(rows);
      try (Tensor x = Tensor.wrap(tokens, DType.I64, rows, LENGTH);
          Tensor y = Tensor.wrap(labels, DType.I64, rows, LENGTH)) {
        for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
          // In place: the tensors see it.
          fill(tokens.asLongBuffer(), labels.asLongBuffer(), i, mesh.rank() * rows);
          StepResult result = step.run(x, y);
          if (mesh.rank() == 0) {
            System.out.printf(Locale.ROOT, "step %d loss %.6f%n", i, result.loss());
          }
        }
      }
    }
  }
}
