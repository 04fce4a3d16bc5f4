// Runs that save and go on, and what can be done with their checkpoints offline.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/cli/training.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Arguments = std::vector<std::string>;

// Six steps of a golden model, with a schedule that shows which step it is. One engine, because the
// faster one may be the other in another process, and then the last bits differ.
const Arguments kRun =
    joined(golden_inputs("tiny-llama"), {"--steps", "6", "--global-batch", "12", "--lr-schedule",
                                         "cosine", "--shuffle", "--product-engine", "mkl"});

Training run_to_end(int ranks, const Arguments& more) {
  Training training = train(ranks, joined(kRun, more));
  EXPECT_EQ(training.outcome.exit_code, 0) << training.outcome.err;
  return training;
}

std::vector<double> losses(const Training& training) {
  std::vector<double> losses;
  for (const Json& step : training.steps) {
    losses.push_back(step.at("loss"));
  }
  return losses;
}

std::vector<double> last(std::vector<double> values, std::ptrdiff_t count) {
  return {values.end() - count, values.end()};
}

TEST(TrainCheckpoints, OfASeriesAreGoneOnFromToTheBit) {
  const std::string folder = empty_directory();
  const Training whole =
      run_to_end(2, {"--save-dir", folder, "--save-every", "2", "--keep-last", "2"});
  EXPECT_THAT(whole.outcome.err, HasSubstr("wrote " + folder + "/step-00000006"));
  EXPECT_FALSE(fs::exists(folder + "/step-00000002"));
  fs::remove_all(folder + "/step-00000006");
  const Training resumed = run_to_end(2, {"--resume", folder});
  EXPECT_THAT(resumed.outcome.err, HasSubstr("step-00000004 at step 4"));
  EXPECT_EQ(losses(resumed), last(losses(whole), 2));
}

// A job that starts again by itself may find its run done, also one whose file names its own
// folder; who names a checkpoint of another run wants more steps.
TEST(TrainCheckpoints, OfADoneRunEndWellUnlessTheyAreNamed) {
  const std::string folder = empty_directory();
  const Arguments ends = {"--stop-step", "2", "--save-dir", folder, "--save-every", "2"};
  run_to_end(2, ends);
  const Training done = run_to_end(2, joined(ends, {"--resume", "auto"}));
  EXPECT_THAT(done.outcome.err, HasSubstr("nothing left to do: step 2 of 2"));
  EXPECT_TRUE(done.steps.empty());
  EXPECT_TRUE(run_to_end(2, joined(ends, {"--resume", folder})).steps.empty());
  const Training named = train(2, joined(kRun, {"--stop-step", "2", "--resume", folder}));
  EXPECT_EQ(named.outcome.exit_code, 2);
  EXPECT_EQ(named.outcome.err_lines_with("--resume " + folder + ": nothing left to do: step 2 of 2")
                .size(),
            1U)
      << named.outcome.err;
}

// The step and the data go on, and the first step after them is that of an optimizer without state.
TEST(TrainCheckpoints, AreGoneOnFromWithoutTheirOptimizer) {
  const std::string folder = empty_directory() + "/run";
  const Training whole = run_to_end(2, {"--stop-step", "4", "--save-dir", folder});
  const Training resumed = run_to_end(2, {"--resume", folder});
  const Training afresh = run_to_end(2, {"--resume", folder, "--resume-without-optimizer"});
  EXPECT_THAT(afresh.outcome.err, HasSubstr("at step 4"));
  ASSERT_EQ(afresh.steps.size(), 2U);
  EXPECT_EQ(afresh.steps[0].at("loss"), resumed.steps.at(0).at("loss"));
  EXPECT_EQ(afresh.steps[0].at("lr"), resumed.steps.at(0).at("lr"));
  EXPECT_NE(afresh.steps[1].at("loss"), resumed.steps.at(1).at("loss"));
}

TEST(TrainCheckpoints, WithoutTheirOptimizerAreGoneOnFromWithANewOne) {
  const std::string folder = empty_directory() + "/run";
  const Training saved = run_to_end(2, {"--stop-step", "4", "--save-dir", folder,
                                        "--save-without-optimizer", "--save-without-rng"});
  const Outcome listed = run({fsdp2_program(), "inspect", folder});
  EXPECT_THAT(listed.out, ::testing::Not(HasSubstr("exp_avg")));
  EXPECT_THAT(listed.out, ::testing::Not(HasSubstr("fsdp2.rng")));
  const Training refused = train(2, joined(kRun, {"--resume", folder}));
  EXPECT_EQ(refused.outcome.exit_code, 1);
  EXPECT_THAT(refused.outcome.err, HasSubstr(": it has no optimizer: expected "
                                             "--resume-without-optimizer"));
  const Training afresh =
      run_to_end(3, {"--resume", folder, "--resume-without-optimizer", "--resume-without-rng"});
  EXPECT_THAT(afresh.outcome.err, HasSubstr("at step 4"));
  EXPECT_EQ(afresh.steps.size(), 2U);
  EXPECT_LT(losses(afresh).front(), losses(saved).front());
}

TEST(TrainCheckpoints, OfTheModelAloneGiveItsWeights) {
  const std::string folder = empty_directory() + "/run";
  const Training whole =
      run_to_end(2, {"--save-dir", folder, "--save-every", "2", "--save-only-model"});
  const Outcome listed = run({fsdp2_program(), "inspect", folder});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, ::testing::Not(HasSubstr("exp_avg")));
  const Training resumed = run_to_end(3, {"--resume", folder + "/step-00000002"});
  EXPECT_THAT(resumed.outcome.err, HasSubstr("which holds a model alone: its weights, at step 0"));
  EXPECT_EQ(resumed.steps.size(), 6U);
  EXPECT_NE(resumed.steps[0].at("loss"), whole.steps[0].at("loss"));
  const Training automatic =
      train(1, joined(kRun, {"--save-dir", folder, "--save-only-model", "--resume", "auto"}));
  EXPECT_THAT(automatic.outcome.err, HasSubstr("--save-only-model and --resume auto exclude"));
}

TEST(TrainCheckpoints, AtTheEndAreGoneOnFromWithOtherRanks) {
  const std::string folder = empty_directory() + "/checkpoint";
  const Training whole = run_to_end(2, {});
  run_to_end(2, {"--stop-step", "3", "--save-dir", folder});
  for (const int ranks : {1, 3, 4}) {
    const Training resumed = run_to_end(ranks, {"--resume", folder});
    ASSERT_EQ(resumed.steps.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(losses(resumed)[i], losses(whole)[i + 3], 1e-5) << ranks << " ranks, step " << i;
    }
  }
}

// Steps of half the windows would be too many by as many as were taken before.
TEST(TrainCheckpoints, OfOtherBatchesAreNotGoneOnFromInEpochs) {
  for (const Arguments& order : std::vector<Arguments>{{}, {"--shuffle"}}) {
    const std::string folder = empty_directory() + "/checkpoint";
    const Arguments own = joined(joined(golden_inputs("tiny-llama"), order), {"--epochs", "2"});
    const auto run = [&](const Arguments& more) { return train(1, joined(own, more)); };
    run({"--global-batch", "24", "--stop-step", "4", "--save-dir", folder});
    const Training alike = run({"--global-batch", "24", "--grad-accum", "2", "--resume", folder});
    EXPECT_EQ(alike.outcome.exit_code, 0) << alike.outcome.err;
    const Training other = run({"--global-batch", "12", "--resume", folder});
    EXPECT_EQ(other.outcome.exit_code, 2);
    EXPECT_THAT(other.outcome.err, HasSubstr("--epochs: the 4 steps before the checkpoint did not "
                                             "all take --global-batch 12 windows"));
    EXPECT_TRUE(other.steps.empty());
  }
}

TEST(TrainCheckpoints, OfAModelAloneGiveItsWeights) {
  const std::string folder = empty_directory();
  for (const char* name : {"/weights.pth", "/weights.safetensors"}) {
    run_to_end(2, {"--stop-step", "2", "--full-state-dict", folder + name});
    const Training resumed = run_to_end(1, {"--stop-step", "1", "--resume", folder + name});
    EXPECT_THAT(resumed.outcome.err, HasSubstr("a model alone"));
    EXPECT_LT(losses(resumed)[0], 6.0);  // 6.2 without
  }
}

TEST(TrainCheckpoints, BringTheLossScaleBack) {
  const std::string folder = empty_directory() + "/checkpoint";
  const Arguments fp16 = {"--param-dtype", "fp16", "--loss-scale", "1e30"};
  run_to_end(2, joined(fp16, {"--stop-step", "3", "--save-dir", folder}));
  const Training resumed = run_to_end(2, joined(fp16, {"--resume", folder}));
  // Far beyond fp16: no step has been applied yet, and each has halved the scale.
  for (size_t i = 0; i < resumed.steps.size(); ++i) {
    const Json& step = resumed.steps[i];
    EXPECT_FALSE(step.at("applied").get<bool>());
    EXPECT_DOUBLE_EQ(step.at("loss_scale").get<double>(),
                     std::ldexp(1e30, -3 - static_cast<int>(i)));
  }
}

TEST(TrainCheckpoints, ThatCannotBeWrittenOrReadAreToldBeforeTraining) {
  const std::string folder = empty_directory();
  write_file(folder + "/file", "text");
  Training training = train(2, joined(kRun, {"--save-dir", folder + "/file/here"}));
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_THAT(training.outcome.err, HasSubstr("--save-dir " + folder + "/file/here"));
  EXPECT_THAT(training.outcome.err, HasSubstr(folder + "/file is a file, expected a directory"));
  training = train(2, joined(kRun, {"--resume", folder + "/nothing"}));
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_THAT(training.outcome.err, HasSubstr(folder + "/nothing"));
  EXPECT_TRUE(training.steps.empty());
}

TEST(TrainCheckpoints, OverOtherThingsAreRefusedBeforeTraining) {
  const std::string folder = empty_directory();
  run_to_end(2, {"--stop-step", "2", "--save-dir", folder, "--save-every", "1"});
  Training training = train(2, joined(kRun, {"--save-dir", folder}));  // --save-every forgotten
  EXPECT_EQ(training.outcome.exit_code, 1);
  EXPECT_THAT(training.outcome.err, HasSubstr("--save-dir " + folder + ": has step-00000001 and"));
  EXPECT_TRUE(training.steps.empty());
  EXPECT_TRUE(fs::exists(folder + "/step-00000002/.metadata"));
}

TEST(TrainCheckpoints, OfASeriesThatAnotherRunSavesAreRefusedBeforeTraining) {
  const std::string folder = empty_directory();
  write_file(folder + "/.fsdp2-series", "process 7 on elsewhere");
  const Arguments saving = joined(kRun, {"--save-dir", folder, "--save-every", "3"});
  const int claim = ::open((folder + "/.fsdp2-series").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(claim, LOCK_EX), 0);
  const Training refused = train(2, saving);
  EXPECT_EQ(refused.outcome.exit_code, 1);
  EXPECT_THAT(refused.outcome.err,
              HasSubstr("--save-dir " + folder + ": another run (process 7 on elsewhere)"));
  EXPECT_TRUE(refused.steps.empty());
  ::close(claim);  // that run has died, and left the file behind
  EXPECT_EQ(train(2, saving).outcome.exit_code, 0);
  EXPECT_FALSE(fs::exists(folder + "/.fsdp2-series"));
}

TEST(TrainCheckpoints, OfADamagedNewestNameTheOneBeforeIt) {
  const std::string folder = empty_directory();
  run_to_end(1, {"--stop-step", "3", "--save-dir", folder, "--save-every", "1"});
  const std::string file = folder + "/step-00000003/__0_0.distcp";
  damage_file(file);
  const Training damaged = train(1, joined(kRun, {"--resume", folder}));
  EXPECT_EQ(damaged.outcome.exit_code, 1);
  EXPECT_THAT(damaged.outcome.err,
              HasSubstr("the complete checkpoint before it is " + folder + "/step-00000002"));
  fs::resize_file(file, fs::file_size(file) - 1);
  const Training passed = train(1, joined(kRun, {"--resume", folder}));
  EXPECT_EQ(passed.outcome.exit_code, 0);
  EXPECT_THAT(passed.outcome.err, HasSubstr(folder + "/step-00000003: files are missing or of "
                                                     "another size: it is passed over"));
  EXPECT_EQ(passed.outcome.err_lines_with("it is passed over").size(), 1U) << passed.outcome.err;
}

Outcome fsdp2(const Arguments& arguments) { return run(joined({fsdp2_program()}, arguments)); }

TEST(Inspect, ListsTensorsObjectsAndChecksums) {
  const std::string folder = empty_directory() + "/checkpoint";
  run_to_end(2, {"--stop-step", "1", "--save-dir", folder});
  const Outcome text = fsdp2({"inspect", folder, "--verify"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("optim.param_groups.0.lr = "));
  EXPECT_EQ(text.out.find(folder + ": a DCP directory, with checksums\nstep 1, saved by 2 ranks; "),
            0u);
  EXPECT_THAT(text.out, HasSubstr("everything has been read and is sound"));
  const Json json = Json::parse(fsdp2({"inspect", folder, "--json"}).out);
  EXPECT_EQ(json.at("complete"), true);
  for (const Json& tensor : json.at("tensors")) {
    for (const Json& chunk : tensor.at("chunks")) {
      EXPECT_EQ(chunk.at("checksum").get<std::string>().size(), 16u);
    }
  }
}

TEST(TrainOutputs, AreInTheDtypeAskedFor) {
  const std::string folder = empty_directory();
  run_to_end(2, {"--save-pretrained", folder + "/hf", "--full-state-dict", folder + "/model.pth",
                 "--export-dtype", "bf16"});
  for (const std::string& path : {folder + "/hf", folder + "/model.pth"}) {
    const Outcome outcome = fsdp2({"inspect", "--json", path});
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const Json told = Json::parse(outcome.out);
    for (const Json& tensor : told.at("tensors")) {
      EXPECT_EQ(tensor.at("dtype"), "BFloat16") << tensor.at("name");
    }
  }
  // What was written is a model to go on from.
  EXPECT_EQ(
      train(1, {"--model", folder + "/hf", "--tokens", kRun[3], "--steps", "1"}).outcome.exit_code,
      0);
}

TEST(TrainOutputs, AModelDirectoryHasWhatItsTextsAreReadAndEndedBy) {
  const std::string folder = empty_directory();
  const std::string model = folder + "/model";
  fs::copy(kRun[1], model);
  for (const char* name : {"generation_config.json", "tokenizer_config.json", "merges.txt"}) {
    write_file(model + "/" + name, name);
  }
  write_file(model + "/tokenizer.json", "tokens");
  write_file(model + "/notes.txt", "mine");
  fs::create_directory(folder + "/hf");
  write_file(folder + "/hf/merges.txt", "of another model");
  write_file(folder + "/hf/README.md", "kept");
  const auto run = [&](const std::string& to, const std::vector<std::string>& more) {
    const std::vector<std::string> command = {"--model", model, "--tokens",          kRun[3],
                                              "--steps", "1",   "--save-pretrained", to};
    EXPECT_EQ(train(2, joined(command, more)).outcome.exit_code, 0);
  };
  run(folder + "/hf", {});
  EXPECT_EQ(read_file(folder + "/hf/generation_config.json"), "generation_config.json");
  EXPECT_EQ(read_file(folder + "/hf/tokenizer.json"), "tokens");
  EXPECT_EQ(read_file(folder + "/hf/tokenizer_config.json"), "tokenizer_config.json");
  EXPECT_EQ(read_file(folder + "/hf/merges.txt"), "merges.txt");
  EXPECT_EQ(read_file(folder + "/hf/README.md"), "kept");
  EXPECT_FALSE(fs::exists(folder + "/hf/notes.txt"));
  write_file(model + "/second.json", "other tokens");
  run(folder + "/second", {"--tokenizer", model + "/second.json"});
  EXPECT_EQ(read_file(folder + "/second/tokenizer.json"), "other tokens");
  EXPECT_FALSE(fs::exists(folder + "/second/second.json"));
  run(folder + "/bytes", {"--tokenizer", "bytes"});
  EXPECT_TRUE(fs::exists(folder + "/bytes/generation_config.json"));
  EXPECT_FALSE(fs::exists(folder + "/bytes/tokenizer.json"));
}

TEST(Inspect, WithoutAPathAsksForIt) {
  EXPECT_EQ(fsdp2({"inspect"}).err, "fsdp2 inspect: PATH is missing (see --help)\n");
  EXPECT_EQ(fsdp2({"convert", "from"}).err, "fsdp2 convert: TO is missing (see --help)\n");
}

TEST(Inspect, CountsWhatHasNoChecksumToCompare) {
  const std::string folder = empty_directory();
  run_to_end(1, {"--stop-step", "1", "--save-dir", folder + "/dcp", "--full-state-dict",
                 folder + "/model.safetensors"});
  const Outcome sound = fsdp2({"inspect", folder + "/model.safetensors", "--verify"});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_THAT(sound.out, HasSubstr("everything has been read and is sound"));
  // A file of another program: its header and the data of one tensor.
  const std::string header = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  write_file(folder + "/other.safetensors", std::string(1, static_cast<char>(header.size())) +
                                                std::string(7, '\0') + header + "ab");
  const Outcome other = fsdp2({"inspect", folder + "/other.safetensors", "--verify"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("1 of 1 items have no checksum to compare"));
}

TEST(Inspect, NamesThatATerminalWouldObeyAreQuoted) {
  const std::string file = empty_directory() + "/model.safetensors";
  const std::string header = R"({"\u001b[31mw":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("größe":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})";
  write_file(file, std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') +
                       header + "ab");
  const Outcome outcome = fsdp2({"inspect", file});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\n\"\\u001b[31mw\"  Byte [1]"));
  EXPECT_THAT(outcome.out, HasSubstr("\ngröße  Byte [1]"));
}

TEST(Inspect, NamesTheItemThatIsDamaged) {
  const std::string folder = empty_directory() + "/checkpoint";
  run_to_end(1, {"--stop-step", "1", "--save-dir", folder});
  damage_file(folder + "/__0_0.distcp");
  const Outcome outcome = fsdp2({"inspect", folder, "--verify"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("__0_0.distcp: item "));
  EXPECT_THAT(train(1, joined(kRun, {"--resume", folder})).outcome.err,
              HasSubstr("__0_0.distcp: item "));
}

TEST(Convert, MistakesNameTheFlag) {
  const std::vector<std::pair<Arguments, std::string>> mistakes = {
      {{"--ranks", "-1"}, "--ranks -1 is below 1"},
      {{"--step", "-1"}, "--step -1 is below 0"},
      {{"--max-file-bytes", "-1"}, "--max-file-bytes -1 is below 1"},
      {{"--ranks", "1e3"}, "--ranks 1e3: expected a whole number (see --help)"},
      {{"--ranks", "2"}, "--ranks needs --format pth-per-rank"},
      {{"--model-config", "x", "--format", "pth"}, "--model-config needs --format model"}};
  for (const auto& [flags, message] : mistakes) {
    const Outcome outcome = fsdp2(joined({"convert", "from", "to"}, flags));
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.err, "fsdp2 convert: " + message + "\n");
  }
}

TEST(Checkpoints, WhosePathsAreNoUtf8AreNamedByTheirArgument) {
  const std::string what = ": expected UTF-8, found byte 0xff at 1\n";
  EXPECT_EQ(fsdp2({"inspect", "x\xff"}).err, "fsdp2 inspect: PATH" + what);
  EXPECT_EQ(fsdp2({"convert", "x\xff", "to"}).err, "fsdp2 convert: FROM" + what);
  EXPECT_EQ(fsdp2({"convert", "from", "x\xff"}).err, "fsdp2 convert: TO" + what);
  EXPECT_EQ(fsdp2({"convert", "from", "to", "--model-config", "x\xff"}).err,
            "fsdp2 convert: --model-config" + what);
}

// A directory with a file's name would surprise whoever misspelt the suffix.
TEST(Convert, ToAFileOfNoKnownFormatIsRefused) {
  const std::string folder = empty_directory();
  for (const char* name : {"/out.xyz", "/model.safetensor", "/.hidden.ckpt"}) {
    const Outcome outcome = fsdp2({"convert", "from", folder + name});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(folder + name + ": the suffix ."));
    EXPECT_THAT(outcome.err, HasSubstr("--format dcp, safetensors, pth, model, pth-per-rank\n"));
  }
  for (const char* name : {"/run-1.5", "/step-00000100", "/run.dcp", "/out.xyz/"}) {
    EXPECT_THAT(fsdp2({"convert", folder + "/nothing", folder + name}).err,
                HasSubstr("/nothing: "));
  }
}

TEST(Convert, OfAnEmptyFileSaysSo) {
  const std::string file = empty_directory() + "/empty.pth";
  write_file(file, "");
  const Outcome outcome = fsdp2({"convert", file, file + ".pth"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.err, "fsdp2 convert: " + file +
                             ": is an empty file: expected one of torch.save or safetensors\n");
}

TEST(Convert, OverTheSeriesThatItReadsFromIsRefused) {
  const std::string folder = empty_directory();
  run_to_end(1, {"--stop-step", "1", "--save-dir", folder + "/step-00000001"});
  const Outcome outcome = fsdp2({"convert", folder + "/step-00000001", folder});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr(folder + ": has step-00000001 in it"));
  EXPECT_TRUE(fs::exists(folder + "/step-00000001/.metadata"));
}

TEST(Convert, OfTheModelAloneKeepsItWhereLoadersLook) {
  const std::string folder = empty_directory();
  run_to_end(1, {"--stop-step", "1", "--save-dir", folder + "/all"});
  const auto names = [&](const std::string& to, const Arguments& more) {
    const Outcome outcome = fsdp2(joined({"convert", folder + "/all", to, "--model-only"}, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return fsdp2({"inspect", to}).out;
  };
  for (const Arguments& format :
       {Arguments{"--format", "dcp"}, Arguments{"--format", "pth-per-rank"}}) {
    const std::string listed = names(folder + "/" + format[1], format);
    EXPECT_THAT(listed, HasSubstr("\nmodel.model.norm.weight "));
    EXPECT_EQ(listed.find("optim."), std::string::npos);
  }
  EXPECT_THAT(names(folder + "/model.pth", {}), HasSubstr("\nmodel.norm.weight "));
}

TEST(Convert, ThroughEveryFormatAndBackKeepsTheRun) {
  const std::string folder = empty_directory();
  run_to_end(2, {"--stop-step", "3", "--save-dir", folder + "/dcp"});
  const Training expected = run_to_end(2, {"--resume", folder + "/dcp"});
  const auto convert = [&](const std::string& from, const std::string& to, const Arguments& more) {
    const Outcome outcome = fsdp2(joined({"convert", folder + from, folder + to}, more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  convert("/dcp", "/all.pth", {});
  EXPECT_EQ(losses(run_to_end(2, {"--resume", folder + "/all.pth"})), losses(expected));
  convert("/all.pth", "/all.pt", {});
  EXPECT_EQ(read_file(folder + "/all.pt"), read_file(folder + "/all.pth"));
  convert("/all.pt", "/ranks", {"--format", "pth-per-rank", "--ranks", "3", "--step", "3"});
  convert("/ranks", "/back", {});
  const Training resumed = run_to_end(2, {"--resume", folder + "/back"});
  EXPECT_EQ(losses(resumed), losses(expected));
  convert("/back", "/weights.safetensors", {});
  convert("/weights.safetensors", "/model",
          {"--format", "model", "--model-config", golden_inputs("tiny-llama")[1] + "/config.json",
           "--max-file-bytes", "200000"});
  EXPECT_TRUE(fs::exists(folder + "/model/model.safetensors.index.json"));
  const Outcome listed = fsdp2({"inspect", folder + "/model"});
  EXPECT_THAT(listed.out, HasSubstr("model.embed_tokens.weight"));
}

}  // namespace
}  // namespace fsdp2::test
