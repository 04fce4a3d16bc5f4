package io.fsdp2;

import static io.fsdp2.Checks.code;
import static io.fsdp2.Checks.expect;
import static io.fsdp2.Checks.expectContains;
import static io.fsdp2.Checks.expectThrown;
import static io.fsdp2.Checks.onRanks;
import static io.fsdp2.Checks.test;

import java.nio.file.Files;
import java.nio.file.Path;

/** Configurations of runs: the values that they give, and what ranks compare of them. */
public final class ConfigTest {
  private static final String YAML =
      """
      actor_train:
        model_args: {model_name_or_path: models/tiny-llama}
        training_args: {learning_rate: 3.0e-3, max_steps: 3,
                        per_device_train_batch_size: 2, gradient_accumulation_steps: 1}
        strategy_args: {strategy_config: {reshard_after_forward: true}}
      """;

  private ConfigTest() {}

  public static void main(String[] arguments) throws Exception {
    test("a configuration gives the values of a run", ConfigTest::aConfigurationGivesValues);
    test(
        "mistakes in a configuration are told with their place",
        ConfigTest::mistakesAreToldWithTheirPlace);
    test(
        "ranks with different configurations are told the key",
        ConfigTest::differentConfigurationsAreTold);
    test(
        "the objects of a configuration train the same on any ranks",
        ConfigTest::objectsTrainTheSame);
  }

  private static void aConfigurationGivesValues() {
    ConfigOptions options =
        ConfigOptions.builder()
            .name("run.yaml")
            .sets("actor_train.training_args.learning_rate=1.0e-4")
            .worldSize(4)
            .build();
    Config config = Config.lower(YAML, options);
    for (Config lowered : new Config[] {config, Config.lower(config.toString())}) {
      expect("0.0001", lowered.getValue("lr"));
      expect("true", lowered.getValue("reshard-after-forward"));
      expect("8", lowered.getValue("global_batch")); // 2 windows on each of 4 ranks
      expect("", lowered.getValue("tokens"));
    }
    expectContains("# run.yaml:3 actor_train.training_args.max_steps\n", config.toString());
    expectContains("lr=0.0001", config.getShared());
  }

  private static void expectRefused(String message, String yaml, ConfigOptions options) {
    FsdpException failure = expectThrown(FsdpException.class, () -> Config.lower(yaml, options));
    expect(ErrorCode.INVALID_ARGUMENT, failure.code());
    expectContains(message, failure.getMessage());
  }

  private static void mistakesAreToldWithTheirPlace() {
    ConfigOptions none = ConfigOptions.builder().build();
    expectRefused("config:2: unknown key lrr; did you mean lr?", "steps: 2\nlrr: 1\n", none);
    expectRefused(
        "there is no role critic; the roles are actor_train",
        YAML,
        ConfigOptions.builder().role("critic").build());
    expectRefused(
        "the configuration is for 2 ranks (run.yaml:1 world_size)",
        "world_size: 2\n",
        ConfigOptions.builder().name("run.yaml").worldSize(4).build());
    expect(ErrorCode.NOT_FOUND, code(() -> Config.lower("lr: 1\n").getValue("lrr")));
  }

  private static void differentConfigurationsAreTold() throws Exception {
    onRanks(
        2,
        mesh -> {
          Config config = Config.lower(mesh.rank() == 0 ? "lr: 1.0e-3" : "\nlr: 2.0e-3");
          FsdpException failure =
              expectThrown(FsdpException.class, () -> mesh.agree("options", config.getShared()));
          expectContains(
              "options: the ranks differ in --lr: rank 0 has 0.001 (", failure.getMessage());
        });
  }

  /** A plain configuration of a small model and a text, both files of a folder. */
  private static Config smallRun() throws Exception {
    Path folder = Files.createTempDirectory("config");
    Path model = folder.resolve("config.json");
    Path text = folder.resolve("text");
    Files.writeString(
        model,
        """
        {"model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5}
        """);
    Files.writeString(text, "Fiat lux. ".repeat(200));
    return Config.lower(
        "model_config: " + model + "\ntext: " + text + "\nepochs: 1\nkeep_memory: false\n");
  }

  private static double firstLoss(Config run, Mesh job) {
    try (Mesh mesh = run.makeMesh(job);
        Module module = run.makeModule();
        Loader loader = run.makeLoader(module, mesh)) {
      Config config = run.settleEpochs(loader.getInfo().stepsPerEpoch());
      try (Shard shard = config.makeShard(module, mesh)) {
        shard.loadValues();
        try (Optimizer optimizer = config.makeOptimizer(shard);
            Step step = config.makeStep(shard, optimizer);
            Batch batch = loader.next()) {
          return step.run(batch).loss();
        }
      }
    }
  }

  private static void objectsTrainTheSame() throws Exception {
    Config config = smallRun();
    config.setUpProcess();
    final double expected;
    try (Mesh job = config.joinJob()) {
      expected = firstLoss(config, job);
    }
    onRanks(
        2,
        job -> {
          double loss = firstLoss(config, job);
          expect(true, Math.abs(loss - expected) < 1e-5 * expected, loss + ", not " + expected);
        });
  }
}
