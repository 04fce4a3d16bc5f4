package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;
import static io.fsdp2.Runs.modelDirectory;

import java.util.Arrays;

/** Scores, losses and text of language models. */
public final class InferTest {
  private static final int WORDS = 384;
  private static final int LENGTH = 6;

  private InferTest() {}

  public static void main(String[] arguments) throws Exception {
    Runs.read(arguments);
    test("scores are log-probabilities", InferTest::scoresAreLogProbabilities);
    test("evaluation is the mean over all rows", InferTest::evaluationIsTheMeanOverAllRows);
    test("generation stops at its tokens", InferTest::generationStopsAtItsTokens);
  }

  /** So many rows of tokens, which differ from rank to rank. */
  private static Tensor tokens(int rank, int rows) {
    long[] values = new long[rows * LENGTH];
    Arrays.setAll(values, i -> (i * 37 + rank * 11) % WORDS);
    return Tensor.of(values, rows, LENGTH);
  }

  private static void expectNear(double wanted, double found, double tolerance) {
    expect(true, Math.abs(wanted - found) < tolerance, wanted + ", " + found);
  }

  private static void scoresAreLogProbabilities() {
    InferOptions options =
        InferOptions.builder().batchSize(2).chunkSize(4).temperature(0.5).build();
    try (Module module = Module.fromPretrained(modelDirectory);
        TensorScope scope = TensorScope.openWithoutGradients()) {
      Tensor tokens = tokens(0, 3);
      Scores scores = module.score(options, tokens);
      Tensor all = module.forward(tokens).mul(2).logSoftmax(2).op("aten::narrow", 1, 0, LENGTH - 1);
      Tensor labels = tokens.op("aten::narrow", 1, 1, LENGTH - 1).unsqueeze(2);
      float[] wanted = all.op("aten::gather", 2, labels).toFloats();
      float[] found = scores.logProbs().toFloats();
      expect(new long[] {3, LENGTH - 1}, scores.logProbs().shape());
      for (int i = 0; i < wanted.length; i++) {
        expectNear(wanted[i], found[i], 1e-4);
      }
      for (float nats : scores.entropies().toFloats()) {
        expect(true, nats > 0 && nats < Math.log(WORDS) + 1e-4);
      }
      InferOptions cold = InferOptions.builder().temperature(0).build();
      expect(ErrorCode.INVALID_ARGUMENT, code(() -> module.score(cold, tokens)));
    }
    try (Module module = Module.fromPretrained(modelDirectory);
        Tensor tokens = tokens(0, 1);
        Scores scores = module.score(tokens)) {
      expect(DType.F32, scores.entropies().dtype());
    }
  }

  private static void evaluationIsTheMeanOverAllRows() throws Exception {
    double[] sums = new double[3];
    Evaluation[] found = new Evaluation[3];
    InferOptions oneByOne =
        InferOptions.builder().batchSize(1).reshardAfterForward(Reshard.NEVER).build();
    onRanks(
        3,
        mesh -> {
          int rank = mesh.rank();
          try (Module module = Module.fromPretrained(modelDirectory);
              Module whole = Module.fromPretrained(modelDirectory);
              Shard shard = Shard.create(module, mesh);
              TensorScope scope = TensorScope.open()) {
            Tensor rows = tokens(rank, 2 - rank); // the last rank has none
            for (float score : whole.score(rows).logProbs().toFloats()) {
              sums[rank] -= score;
            }
            found[rank] = module.evaluate(oneByOne, rows);
          }
        });
    double mean = Arrays.stream(sums).sum() / (3 * (LENGTH - 1));
    for (Evaluation evaluation : found) {
      expect(3L * (LENGTH - 1), evaluation.labels());
      expectNear(mean, evaluation.loss(), 1e-5);
    }
  }

  private static void generationStopsAtItsTokens() {
    long[][] prompts = {{1, 2, 3, 4}, {7}, {5, 9}};
    GenerateOptions.Builder sampling =
        GenerateOptions.builder().maxNewTokens(6).topK(50).topP(0.9).seed(3);
    try (Module module = Module.fromPretrained(modelDirectory)) {
      long[][] free = module.generateBatch(prompts, sampling.build());
      long stop = free[0][2];
      sampling.stopTokens(stop, WORDS - 1);
      long[][] stopped = module.generateBatch(prompts, sampling.build());
      for (int row = 0; row < prompts.length; row++) {
        int end = 0;
        while (end < 6 && free[row][end] != stop && free[row][end] != WORDS - 1) {
          end++;
        }
        expect(6, free[row].length);
        expect(Arrays.copyOf(free[row], Math.min(6, end + 1)), stopped[row]);
        long[] alone = module.generate(prompts[row], sampling.firstRow(row).build());
        expect(stopped[row], alone);
      }
      expect(true, stopped[0].length <= 3);
      GenerateOptions tooMany = GenerateOptions.builder().maxNewTokens(Integer.MAX_VALUE).build();
      expect(ErrorCode.INVALID_ARGUMENT, code(() -> module.generate(new long[] {1}, tooMany)));
      try (Tensor pixels = Tensor.of(new float[] {0}, 1)) {
        GenerateOptions seeing = GenerateOptions.builder().visionInputs(null, pixels).build();
        expect(ErrorCode.INVALID_ARGUMENT, code(() -> module.generate(new long[] {1}, seeing)));
      }
      GenerateOptions options = sampling.build();
      expect(0, module.generateBatch(new long[0][], options).length);
      expect(
          ErrorCode.INVALID_ARGUMENT,
          code(() -> module.generateBatch(new long[][] {{1}, {}}, options)));
    }
  }
}
