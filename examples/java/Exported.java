import io.fsdp2.AdamwOptions;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.Optimizer;
import io.fsdp2.Shard;
import io.fsdp2.Step;
import io.fsdp2.StepResult;
import io.fsdp2.Tensor;
import java.util.Locale;

/**
 * Trains a program that PyTorch's torch.export has written, such as a model of
 * examples/python/export_model.py, on tokens and labels of [4, 7]:
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Exported PROGRAM.pt2 STEPS</pre>
 */
public final class Exported {
  private Exported() {}

  private static final int ROWS = 4;
  private static final int LENGTH = 7;
  private static final int VOCABULARY = 23;

  /** Each rank has tokens of its own. */
  private static Tensor tokens(int step, int rank) {
    long[] tokens = new long[ROWS * LENGTH];
    for (int i = 0; i < tokens.length; i++) {
      tokens[i] = (5 * i + 11 * step + 3 * rank) % VOCABULARY;
    }
    return Tensor.of(tokens, ROWS, LENGTH);
  }

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Exported PROGRAM STEPS");
      System.exit(2);
    }
    AdamwOptions adamw = AdamwOptions.builder().lr(3e-3).build();
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromExported(arguments[0]);
        Shard shard = Shard.create(module, mesh);
        Optimizer optimizer = Optimizer.createAdamw(shard, adamw);
        Step step = Step.create(shard, optimizer)) {
      for (int i = 0; i < Integer.parseInt(arguments[1]); i++) {
        try (Tensor tokens = tokens(i, mesh.rank())) {
          StepResult result = step.run(tokens, tokens); // the model shifts its labels itself
          if (mesh.rank() == 0) {
            System.out.printf(Locale.ROOT, "step %d loss %.6f%n", i, result.loss());
          }
        }
      }
    }
  }
}
