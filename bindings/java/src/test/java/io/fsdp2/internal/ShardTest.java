package io.fsdp2.internal;

import io.fsdp2.FsdpException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;

/** FSDP2's powers from Java, on two ranks that are threads; callbacks into Java above all. */
public final class ShardTest {
  private static final int RANKS = 2;
  private static final String UNIT = "model.layers.0";

  private final String modelDirectory;
  private final String tokenFile;
  private int runs;

  private ShardTest(String modelDirectory, String tokenFile) {
    this.modelDirectory = modelDirectory;
    this.tokenFile = tokenFile;
  }

  public static void main(String[] arguments) throws Exception {
    ShardTest test = new ShardTest(arguments[0], arguments[1]);
    test.aUnitIsUnshardedAndResharded();
    test.hooksSeeAndChangeGradients();
    test.anExtensionCarriesEveryParameter();
    test.whatACallbackThrowsIsTheCause();
    test.aCallThatFailsKeepsNothing();
    expect(0L, Raw.fsdp2_live_handles());
    System.out.println("5 tests passed");
  }

  /** One rank's mesh, model and shard. */
  private static final class Rank {
    long mesh;
    long module;
    long shard;
  }

  private interface Body {
    void run(Rank rank) throws Exception;
  }

  /** Runs the body on every rank, with a model whose layers are units. */
  private void onRanks(ShardDim shardDim, Body body) throws Exception {
    String meeting = "thread://java" + runs++;
    List<Throwable> thrown = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (int rank = 0; rank < RANKS; rank++) {
      int number = rank;
      Thread thread = new Thread(() -> runRank(meeting, number, shardDim, body));
      thread.setUncaughtExceptionHandler(
          (where, failure) -> {
            synchronized (thrown) {
              thrown.add(failure);
            }
          });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    if (!thrown.isEmpty()) {
      throw new AssertionError(thrown.get(0));
    }
  }

  private void runRank(String meeting, int number, ShardDim shardDim, Body body) {
    Rank rank = new Rank();
    long[] out = new long[1];
    try (fsdp2_mesh_options place = new fsdp2_mesh_options();
        fsdp2_shard_options options = new fsdp2_shard_options()) {
      place.setRendezvous(meeting);
      place.setRank(number);
      place.setWorld_size(RANKS);
      Raw.fsdp2_mesh_create(place, out);
      rank.mesh = out[0];
      Raw.fsdp2_module_from_pretrained(modelDirectory, null, out);
      rank.module = out[0];
      options.setShardDim(shardDim);
      Raw.fsdp2_shard_create(rank.module, rank.mesh, options, out);
      rank.shard = out[0];
      body.run(rank);
    } catch (Exception e) {
      throw new AssertionError(e);
    } finally {
      Raw.fsdp2_shard_destroy(rank.shard);
      Raw.fsdp2_module_destroy(rank.module);
      Raw.fsdp2_mesh_destroy(rank.mesh);
    }
  }

  private void aUnitIsUnshardedAndResharded() throws Exception {
    Map<String, Integer> asked = new ConcurrentHashMap<>();
    onRanks(
        parameter -> {
          asked.merge(parameter.parameter(), 1, Integer::sum);
          expect(Raw.FSDP2_DTYPE_F32, parameter.dtype());
          return parameter.shape().length == 2
                  && parameter.parameter().endsWith("embed_tokens.weight")
              ? 1
              : 0;
        },
        rank -> {
          try (fsdp2_shard_stats stats = new fsdp2_shard_stats();
              fsdp2_parameter_info info = new fsdp2_parameter_info()) {
            Raw.fsdp2_shard_unshard(rank.shard, UNIT, 0);
            Raw.fsdp2_shard_get_stats(rank.shard, stats);
            expect(true, stats.getUnsharded_bytes() > 0);
            Raw.fsdp2_shard_reshard(rank.shard, UNIT);
            Raw.fsdp2_shard_get_stats(rank.shard, stats);
            expect(0L, stats.getUnsharded_bytes());
            expect(
                List.of(
                    Raw.FSDP2_EVENT_ALL_GATHER, Raw.FSDP2_EVENT_UNSHARD, Raw.FSDP2_EVENT_RESHARD),
                events(rank));
            long[] index = new long[1];
            Raw.fsdp2_shard_get_parameter_index(rank.shard, "model.embed_tokens.weight", index);
            Raw.fsdp2_shard_get_parameter_info(rank.shard, index[0], info);
            expect(1, info.getShard_dim());
            expect(info.getShape()[1], RANKS * info.getLocal_shape()[1]);
          }
        });
    expect(RANKS, asked.get("model.embed_tokens.weight"));
  }

  private static List<Integer> events(Rank rank) {
    long[] needed = new long[1];
    int[] kinds = new int[16];
    Raw.fsdp2_shard_get_events(rank.shard, kinds, new long[16], kinds.length, needed);
    List<Integer> events = new ArrayList<>();
    for (int i = 0; i < needed[0]; i++) {
      events.add(kinds[i]);
    }
    return events;
  }

  private void hooksSeeAndChangeGradients() throws Exception {
    onRanks(
        null,
        rank -> {
          backward(rank);
          double whole = norm(rank);
          Raw.fsdp2_shard_zero_grad(rank.shard);
          AtomicInteger ready = new AtomicInteger();
          Raw.fsdp2_shard_set_all_reduce_hook(rank.shard, UNIT, ShardTest::clear);
          Raw.fsdp2_shard_set_gradient_ready(
              rank.shard, null, 1, (info, gradient) -> ready.incrementAndGet());
          backward(rank);
          long[] parameters = new long[1];
          Raw.fsdp2_shard_get_parameter_count(rank.shard, parameters);
          expect(parameters[0], (long) ready.get());
          expect(true, norm(rank) < whole);
          Raw.fsdp2_shard_set_all_reduce_hook(rank.shard, UNIT, null);
          Raw.fsdp2_shard_set_gradient_ready(rank.shard, null, 1, null);
          Raw.fsdp2_shard_zero_grad(rank.shard);
          backward(rank);
          expect(whole, norm(rank));
        });
  }

  private static void clear(AllReduceInfo info, long tensor) {
    expect(UNIT, info.unit());
    ByteBuffer zeros = ByteBuffer.allocateDirect(bytesOf(tensor));
    Raw.fsdp2_tensor_write(tensor, zeros, zeros.capacity());
  }

  private void anExtensionCarriesEveryParameter() throws Exception {
    AtomicInteger sent = new AtomicInteger();
    AllGatherExtension plain =
        new AllGatherExtension() {
          @Override
          public long preAllGather(GatherInfo gather, long chunk) {
            expect(RANKS, gather.shardRanks());
            expect(Raw.FSDP2_DTYPE_F32, gather.computeDtype());
            sent.incrementAndGet();
            ByteBuffer values = read(chunk);
            long[] out = new long[1];
            Raw.fsdp2_tensor_from_buffer(
                values,
                values.capacity(),
                Raw.FSDP2_DTYPE_F32,
                new long[] {values.capacity() / 4},
                1,
                out);
            return out[0];
          }

          @Override
          public void postAllGather(GatherInfo gather, long pieces, long chunks) {
            ByteBuffer values = read(pieces);
            Raw.fsdp2_tensor_write(chunks, values, values.capacity());
          }
        };
    onRanks(
        null,
        rank -> {
          backward(rank);
          double plainly = norm(rank);
          Raw.fsdp2_shard_zero_grad(rank.shard);
          Raw.fsdp2_shard_set_all_gather_extension(rank.shard, UNIT, plain);
          backward(rank);
          expect(plainly, norm(rank));
        });
    expect(true, sent.get() >= RANKS);
  }

  private void whatACallbackThrowsIsTheCause() throws Exception {
    IllegalStateException refusal = new IllegalStateException("no π for you");
    onRanks(
        null,
        rank -> {
          Raw.fsdp2_shard_set_gradient_ready(
              rank.shard,
              UNIT,
              0,
              (info, gradient) -> {
                throw refusal;
              });
          try {
            backward(rank);
            throw new AssertionError("no exception");
          } catch (FsdpException e) {
            boolean own = e.status() == Raw.FSDP2_E_CALLBACK;
            expect(true, own || e.status() == Raw.FSDP2_E_PEER_FAILED);
            expect(own ? refusal : null, e.getCause());
            expect(true, e.getMessage().contains("no π for you"));
          }
        });
  }

  private void aCallThatFailsKeepsNothing() throws Exception {
    onRanks(
        null,
        rank -> {
          try {
            Raw.fsdp2_shard_set_all_reduce_hook(rank.shard, "no.such.unit", ShardTest::clear);
            throw new AssertionError("no exception");
          } catch (FsdpException e) {
            expect(null, e.getCause());
          }
        });
  }

  private void backward(Rank rank) {
    long[] out = new long[1];
    long loader;
    try (fsdp2_loader_options options = new fsdp2_loader_options();
        fsdp2_module_info model = new fsdp2_module_info()) {
      Raw.fsdp2_module_get_info(rank.module, model);
      options.setSequence_length(16);
      options.setGlobal_batch(RANKS);
      options.setVocab_size(model.getVocab_size());
      Raw.fsdp2_loader_open(rank.mesh, tokenFile, options, out);
      loader = out[0];
    }
    long[] tokens = new long[1];
    long[] labels = new long[1];
    long[] results = new long[4];
    Raw.fsdp2_loader_next(loader, tokens, labels);
    try {
      Raw.fsdp2_module_forward(
          rank.module, new long[] {tokens[0], labels[0]}, 2, 0, results, results.length, out);
      Raw.fsdp2_tensor_backward(results[0]);
    } finally {
      for (long tensor : results) {
        if (tensor != 0) {
          Raw.fsdp2_tensor_destroy(tensor);
        }
      }
      Raw.fsdp2_tensor_destroy(tokens[0]);
      Raw.fsdp2_tensor_destroy(labels[0]);
      Raw.fsdp2_loader_destroy(loader);
    }
  }

  private static double norm(Rank rank) {
    double[] norm = new double[1];
    Raw.fsdp2_shard_get_grad_norm(rank.shard, 2.0, norm);
    return norm[0];
  }

  private static int bytesOf(long tensor) {
    try (fsdp2_tensor_info info = new fsdp2_tensor_info()) {
      Raw.fsdp2_tensor_get_info(tensor, info);
      return (int) info.getN_bytes();
    }
  }

  private static ByteBuffer read(long tensor) {
    ByteBuffer values = ByteBuffer.allocateDirect(bytesOf(tensor)).order(ByteOrder.nativeOrder());
    Raw.fsdp2_tensor_read(tensor, values, values.capacity());
    return values;
  }

  private static void expect(Object wanted, Object found) {
    if (wanted == null ? found != null : !wanted.equals(found)) {
      throw new AssertionError("expected " + wanted + ", got " + found);
    }
  }
}
