import io.fsdp2.GenerateOptions;
import io.fsdp2.Mesh;
import io.fsdp2.Module;
import io.fsdp2.Shard;
import io.fsdp2.Tensor;
import io.fsdp2.TensorScope;
import java.util.Arrays;
import java.util.Locale;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/**
 * Uses a model without training it: its loss on a text of tokens, and how it goes on.
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Generate MODEL_DIRECTORY</pre>
 */
public final class Generate {
  private Generate() {}

  private static final int LENGTH = 16;

  public static void main(String[] arguments) {
    if (arguments.length != 1) {
      System.err.println("usage: Generate MODEL_DIRECTORY");
      System.exit(2);
    }
    long[] text = LongStream.rangeClosed(0, LENGTH).map(i -> 7 * i % 384).toArray();
    long[] prompt = Arrays.copyOf(text, LENGTH);
    GenerateOptions greedy = GenerateOptions.builder().maxNewTokens(8).temperature(0).build();
    try (Mesh mesh = Mesh.create();
        Module module = Module.fromPretrained(arguments[0])) {
      module.train(false); // no dropout
      try (Shard shard = Shard.create(module, mesh);
          TensorScope scope = TensorScope.openWithoutGradients()) {
        Tensor tokens = Tensor.of(prompt, 1, LENGTH);
        Tensor labels = Tensor.of(Arrays.copyOfRange(text, 1, LENGTH + 1), 1, LENGTH);
        double loss = module.forward(tokens, labels).getValue();
        String words =
            LongStream.of(module.generate(prompt, greedy))
                .mapToObj(Long::toString)
                .collect(Collectors.joining(" "));
        if (mesh.rank() == 0) {
          System.out.printf(Locale.ROOT, "loss %.6f%ntokens %s%n", loss, words);
        }
      }
    }
  }
}
