package io.fsdp2;

import io.fsdp2.internal.ModelTest;
import io.fsdp2.internal.RawTest;
import io.fsdp2.internal.ShardTest;

/** All tests in one process, because Java takes longer to start than most of them to run. */
public final class AllTests {
  private AllTests() {}

  /** Takes a model's directory and a file of its tokens. */
  public static void main(String[] arguments) throws Exception {
    RawTest.main(arguments);
    ModelTest.main(arguments);
    ShardTest.main(arguments);
    LocalTest.main(arguments);
    TensorTest.main(arguments);
    ConfigTest.main(arguments);
    MeshTest.main(arguments);
    CustomTest.main(arguments);
    FailingForwardTest.main(arguments);
    FunctionTest.main(arguments);
    OwnTest.main(arguments);
    UnitTest.main(arguments);
    LayerTest.main(arguments);
    TrainingTest.main(arguments);
    InferTest.main(arguments);
    CheckpointTest.main(arguments);
  }
}
