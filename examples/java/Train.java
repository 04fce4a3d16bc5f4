import io.fsdp2.internal.Raw;
import io.fsdp2.internal.fsdp2_adamw_options;
import io.fsdp2.internal.fsdp2_loader_options;
import io.fsdp2.internal.fsdp2_mesh_info;
import io.fsdp2.internal.fsdp2_module_info;
import io.fsdp2.internal.fsdp2_step_result;
import java.util.Locale;

/**
 * Fine-tunes a Hugging Face model for five steps on all ranks of the job:
 *
 * <pre>fsdp2 run --nproc-per-node 2 -- java Train MODEL_DIRECTORY TOKEN_FILE</pre>
 */
public final class Train {
  private Train() {}

  public static void main(String[] arguments) {
    if (arguments.length != 2) {
      System.err.println("usage: Train MODEL_DIRECTORY TOKEN_FILE");
      System.exit(2);
    }
    train(arguments[0], arguments[1]);
    if (Raw.fsdp2_live_handles() != 0) {
      throw new IllegalStateException(Raw.fsdp2_live_handles() + " live handles");
    }
  }

  private static void train(String directory, String tokenFile) {
    long[] out = new long[1];
    Raw.fsdp2_mesh_create(null, out);
    long mesh = out[0];
    Raw.fsdp2_module_from_pretrained(directory, null, out);
    long module = out[0];
    Raw.fsdp2_shard_create(module, mesh, null, out);
    long shard = out[0];

    long optimizer;
    try (fsdp2_adamw_options options = new fsdp2_adamw_options()) {
      options.setLr(3e-3);
      options.setBeta2(0.95);
      options.setWeight_decay(0.1);
      Raw.fsdp2_optimizer_create_adamw(shard, options, out);
      optimizer = out[0];
    }
    long loader;
    try (fsdp2_module_info model = new fsdp2_module_info();
        fsdp2_loader_options options = new fsdp2_loader_options()) {
      Raw.fsdp2_module_get_info(module, model);
      options.setSequence_length(32);
      options.setGlobal_batch(8);
      options.setVocab_size(model.getVocab_size());
      Raw.fsdp2_loader_open(mesh, tokenFile, options, out);
      loader = out[0];
    }

    Raw.fsdp2_step_create(shard, optimizer, null, out);
    long step = out[0];
    try (fsdp2_mesh_info job = new fsdp2_mesh_info();
        fsdp2_step_result result = new fsdp2_step_result()) {
      Raw.fsdp2_mesh_get_info(mesh, job);
      for (int i = 0; i < 5; i++) {
        long[] tokens = new long[1];
        long[] labels = new long[1];
        Raw.fsdp2_loader_next(loader, tokens, labels);
        Raw.fsdp2_step_run(step, new long[] {tokens[0], labels[0]}, 2, result);
        Raw.fsdp2_tensor_destroy(tokens[0]);
        Raw.fsdp2_tensor_destroy(labels[0]);
        if (job.getRank() == 0) {
          System.out.printf(Locale.ROOT, "step %d loss %.6f%n", result.getStep(), result.getLoss());
        }
      }
    }

    Raw.fsdp2_step_destroy(step);
    Raw.fsdp2_loader_destroy(loader);
    Raw.fsdp2_optimizer_destroy(optimizer);
    Raw.fsdp2_shard_destroy(shard);
    Raw.fsdp2_module_destroy(module);
    Raw.fsdp2_mesh_destroy(mesh);
  }
}
