// Ranks started by what people start ranks with. A launcher that is not installed skips its tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/cli/training.h"
#include "tests/support/free_port.h"

namespace fsdp2::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Texts = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

// Where a program is, "" if nowhere. `variable` may say so.
std::string find_program(const std::string& name, const char* variable = nullptr) {
  const char* said = variable == nullptr ? nullptr : std::getenv(variable);
  if (said != nullptr) {
    return said;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders((path == nullptr ? std::string() : path) + ":/usr/bin:/usr/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return "";
}

std::string cluster_file(const std::string& name) {
  return repository_file("examples/cluster/" + name);
}

// fsdp2 is on the PATH, as the examples expect it.
Variables environment(const Variables& more = {}) {
  const char* path = std::getenv("PATH");
  const std::string folder = fs::path(fsdp2_program()).parent_path();
  Variables variables = {{"PATH", folder + ":" + (path == nullptr ? "/usr/bin:/bin" : path)},
                         {"OMP_NUM_THREADS", "1"}};
  variables.insert(variables.end(), more.begin(), more.end());
  return variables;
}

Json golden_run(int ranks) {
  const Json golden_runs = golden("tiny-llama").at("runs");
  const auto found = std::find_if(golden_runs.begin(), golden_runs.end(), [&](const Json& run) {
    return run.at("name") == "fp32" && run.at("world_size") == ranks;
  });
  EXPECT_NE(found, golden_runs.end());
  return *found;
}

// The arguments of `fsdp2 train` for the golden run of so many ranks.
Texts arguments_for(int ranks) {
  return joined(golden_inputs("tiny-llama"), flags_of(golden_run(ranks)));
}

// Those with what a file of examples/cluster wants: it resumes from --save-dir by itself.
Texts arguments_with_checkpoints(int ranks) {
  return joined(arguments_for(ranks),
                {"--save-dir", empty_directory() + "/checkpoints", "--save-every", "5"});
}

void expect_golden(const Outcome& outcome, int ranks) {
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  const Training training = read_training(outcome);
  const Json tolerance = golden("tiny-llama").at("tolerances").at("fp32");
  expect_same_steps(training.steps, golden_run(ranks),
                    {tolerance.at("loss"), tolerance.at("grad_norm")});
  EXPECT_EQ(training.summary.at("world_size"), ranks);
}

RunIn with(const Variables& variables) {
  RunIn how;
  how.environment = variables;
  return how;
}

// Runs commands beside each other; all must end well. What they print is the first one's.
Outcome run_together(const std::vector<Texts>& commands, const std::vector<Variables>& variables) {
  std::vector<Outcome> outcomes(commands.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < commands.size(); ++i) {
    threads.emplace_back([&, i] { outcomes[i] = run(commands[i], with(variables[i])); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  }
  return outcomes.front();
}

// Two "nodes" of one machine: addresses of the loopback range.
TEST(Nodes, TwoWithTwoRanksEach) {
  const FreePort port;
  const Texts arguments = arguments_with_checkpoints(4);
  std::vector<Texts> commands;
  for (const std::string node : {"0", "1"}) {
    commands.push_back(
        joined({cluster_file("nodes.sh"), "2", node, "127.0.0.2", port.text(), "2"}, arguments));
  }
  expect_golden(run_together(commands, {environment(), environment()}), 4);
}

TEST(Nodes, ANodeWhoseRankDiesEndsTheOther) {
  const FreePort port;
  const auto node = [&](const std::string& number, const std::string& script) {
    return Texts{fsdp2_program(),
                 "run",
                 "--nnodes",
                 "2",
                 "--node-rank",
                 number,
                 "--master-addr",
                 "127.0.0.2",
                 "--master-port",
                 port.text(),
                 "--nproc-per-node",
                 "1",
                 "--",
                 "sh",
                 "-c",
                 script};
  };
  const std::string metrics = empty_directory() + "/metrics.jsonl";
  std::string train = "exec fsdp2 train --steps 100000 --quiet --metrics " + metrics;
  for (const std::string& argument : golden_inputs("tiny-llama")) {
    train += " " + argument;
  }
  Outcome survivor;
  std::thread other([&] { survivor = run(node("0", train), with(environment())); });
  const std::string die_in_training =
      "(for i in $(seq 600); do test -s " + metrics + " && break; sleep 0.1; done; kill -9 $$) & ";
  const Outcome dead = run(node("1", die_in_training + train), with(environment()));
  other.join();
  EXPECT_EQ(dead.exit_code, 128 + SIGKILL);
  EXPECT_NE(survivor.exit_code, 0);
  EXPECT_FALSE(survivor.timed_out);
  EXPECT_THAT(survivor.err, HasSubstr("failed on rank 0"));
  EXPECT_THAT(survivor.err, HasSubstr("rank 1 does not answer: it has ended"));
}

// torchrun of the environment that other tests compare with, "" if there is none yet.
std::string torchrun_of_parity_environment() {
  const Outcome found = run({repository_file("tests/parity/python_environment.sh")}, with({}));
  const std::string python = found.out.substr(0, found.out.find('\n'));
  return found.exit_code == 0 ? fs::path(python).parent_path() / "torchrun" : fs::path();
}

class Torchrun : public ::testing::Test {
 protected:
  void SetUp() override {
    torchrun_ = find_program("torchrun", "FSDP2_TORCHRUN");
    if (torchrun_.empty()) {
      torchrun_ = torchrun_of_parity_environment();
    }
    if (torchrun_.empty()) {
      GTEST_SKIP() << "no torchrun: tests/parity/python_environment.sh --install, or set "
                      "FSDP2_TORCHRUN";
    }
  }
  RunIn how() const {
    return with(environment({{"FSDP2_TORCHRUN", torchrun_}, {"MASTER_PORT", port_.text()}}));
  }
  const FreePort port_;
  std::string torchrun_;
};

TEST_F(Torchrun, Static) {
  expect_golden(
      run(joined({cluster_file("torchrun.sh"), "static", "2"}, arguments_with_checkpoints(2)),
          how()),
      2);
}

// From kill -9 in the midst of training to the losses of a run that nobody killed, to the bit: the
// ranks that the launcher starts again go on from the newest checkpoint.
TEST_F(Torchrun, ElasticStartsAgainWhereTheRanksWereWhenOneWasKilled) {
  const std::string folder = empty_directory();
  const auto arguments = [&](const std::string& name) {
    return joined(golden_inputs("tiny-llama"),
                  {"--steps", "300", "--lr-schedule", "cosine", "--shuffle", "--save-every", "10",
                   "--product-engine", "mkl",  // the faster one may be another after the restart
                   "--save-dir", folder + "/" + name, "--metrics", folder + "/" + name + ".jsonl"});
  };
  const Training whole = train(2, arguments("whole"));
  ASSERT_EQ(whole.outcome.exit_code, 0) << whole.outcome.err;

  write_file(folder + "/fsdp2",
             "#!/bin/sh\n"
             "if [ \"$TORCHELASTIC_RESTART_COUNT\" = 0 ] && [ \"$RANK\" = 1 ]; then\n"
             "  (until [ -e " +
                 folder +
                 "/killed/step-00000100 ]; do sleep 0.01; done\n"
                 "   kill -9 $$) &\n"
                 "fi\n"
                 "exec \"$REAL_FSDP2\" \"$@\"\n");
  fs::permissions(folder + "/fsdp2", fs::perms::owner_all);
  RunIn flaky = how();
  flaky.environment.front().second = folder + ":" + flaky.environment.front().second;
  flaky.environment.emplace_back("REAL_FSDP2", fsdp2_program());
  const Outcome outcome =
      run(joined({cluster_file("torchrun.sh"), "elastic", "2"}, arguments("killed")), flaky);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("exitcode: -9"));
  EXPECT_THAT(outcome.err, HasSubstr("resuming from " + folder + "/killed/step-"));
  Outcome expected, found;
  expected.out = read_file(folder + "/whole.jsonl");
  found.out = read_file(folder + "/killed.jsonl");
  EXPECT_EQ(read_training(found).steps.size(), 300U);
  EXPECT_EQ(as_lists(read_training(found).steps), as_lists(read_training(expected).steps));
}

TEST(Mpirun, TwoRanks) {
  const std::string mpirun = find_program("mpirun");
  if (mpirun.empty()) {
    GTEST_SKIP() << "no mpirun on the PATH: apt-get install openmpi-bin";
  }
  const FreePort port;
  const Variables variables = environment({{"MASTER_PORT", port.text()},
                                           {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  expect_golden(run(joined({mpirun, "--oversubscribe", "-n", "2", fsdp2_program(), "train"},
                           arguments_for(2)),
                    with(variables)),
                2);
}

class Slurm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_program("srun").empty() || find_program("slurmctld").empty() ||
        find_program("slurmd").empty()) {
      GTEST_SKIP() << "no Slurm on the PATH: apt-get install slurm-wlm";
    }
    folder_ = empty_directory();
  }
  // On a Slurm of one node, which ends with it.
  Outcome on_slurm(const Texts& command) const {
    RunIn how = with(environment());
    how.directory = folder_;
    return run(joined({repository_file("tests/cli/slurm_node.sh"), folder_ + "/slurm"}, command),
               how);
  }
  std::string folder_;
};

TEST_F(Slurm, SrunStartsTasksAsRanks) {
  expect_golden(on_slurm(joined({"srun", "--ntasks", "2", "--overcommit", fsdp2_program(), "train"},
                                arguments_for(2))),
                2);
}

TEST_F(Slurm, TheBatchScriptRuns) {
  const Outcome outcome =
      on_slurm(joined({"sbatch", "--wait", "--nodes=1", "--ntasks-per-node=2", "--cpus-per-task=1",
                       "--overcommit", "--output=job.out", cluster_file("job.sbatch")},
                      arguments_with_checkpoints(2)));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  Outcome job = outcome;
  job.out = read_file(folder_ + "/job.out");
  expect_golden(job, 2);
}

// A container of a manifest as a process of this machine.
struct Container {
  Texts command;
  Variables variables;
};

Container container_of(const YAML::Node& pod_template) {
  const YAML::Node container = pod_template["spec"]["containers"][0];
  Container found;
  found.command = joined(container["command"].as<Texts>(), container["args"].as<Texts>());
  for (const YAML::Node& entry : container["env"]) {
    found.variables.emplace_back(entry["name"].as<std::string>(), entry["value"].as<std::string>());
  }
  return found;
}

// The volume of the manifests' pods.
class Volume {
 public:
  Volume() : folder_(empty_directory()) {
    const Texts inputs = golden_inputs("tiny-llama");
    fs::create_directory_symlink(inputs[1], folder_ + "/model");
    fs::create_symlink(inputs[3], folder_ + "/tokens.bin");
  }
  // A text of a manifest with this folder in place of /data.
  std::string mounted(std::string text) const {
    const std::string mount = "/data/";
    for (size_t at = 0; (at = text.find(mount, at)) != std::string::npos;) {
      text.replace(at, mount.size(), folder_ + "/");
      at += folder_.size();
    }
    return text;
  }
  // What the pods have left there is a golden run, and started again they go on from its end.
  void expect_golden_run(int ranks, const Outcome& again) const {
    Outcome metrics;
    metrics.exit_code = 0;
    metrics.out = read_file(folder_ + "/metrics.jsonl");
    expect_golden(metrics, ranks);
    EXPECT_TRUE(fs::exists(folder_ + "/out/model.safetensors"));
    EXPECT_THAT(again.err, HasSubstr("resuming from " + folder_ + "/checkpoints/step-"));
  }

 private:
  std::string folder_;
};

TEST(Kubernetes, PodsOfTheIndexedJobAreNodes) {
  const auto documents = YAML::LoadAllFromFile(cluster_file("indexed-job.yaml"));
  ASSERT_EQ(documents.size(), 2U);
  const YAML::Node job = documents[1]["spec"];
  Container pod = container_of(job["template"]);
  const Variables variables = pod.variables;
  const int ranks = 4;
  EXPECT_THAT(variables, ::testing::Contains(std::pair<std::string, std::string>(
                             "NODES", job["completions"].as<std::string>())));
  EXPECT_EQ(job["template"]["spec"]["subdomain"].as<std::string>(),
            documents[0]["metadata"]["name"].as<std::string>());
  const Volume volume;
  pod.command.back() = volume.mounted(pod.command.back());
  for (const std::string& flag : flags_of(golden_run(ranks))) {
    pod.command.back() += " " + flag;
  }
  const FreePort port;
  std::vector<Variables> pods;
  for (const char* index : {"0", "1"}) {
    Variables own = environment(variables);
    own.insert(own.end(), {{"JOB_COMPLETION_INDEX", index},
                           {"MASTER_ADDR", "127.0.0.1"},  // the pod's name
                           {"MASTER_PORT", port.text()}});
    pods.push_back(own);
  }
  run_together({pod.command, pod.command}, pods);
  volume.expect_golden_run(ranks, run_together({pod.command, pod.command}, pods));
}

TEST(Kubernetes, PodsOfThePyTorchJobAreRanks) {
  const YAML::Node job = YAML::LoadFile(cluster_file("pytorchjob.yaml"))["spec"];
  const FreePort port;
  const Volume volume;
  std::vector<Texts> commands;
  std::vector<Variables> pods;
  for (const char* kind : {"Master", "Worker"}) {
    const YAML::Node replica = job["pytorchReplicaSpecs"][kind];
    EXPECT_EQ(replica["replicas"].as<int>(), 1);
    const Container pod = container_of(replica["template"]);
    ASSERT_GE(pod.command.size(), 2U);
    Texts command = {fsdp2_program()};
    for (size_t i = 1; i < pod.command.size(); ++i) {
      command.push_back(volume.mounted(pod.command[i]));
    }
    commands.push_back(joined(command, flags_of(golden_run(2))));
    Variables own = environment(pod.variables);
    own.insert(own.end(), {{"RANK", std::to_string(pods.size())},  // what the operator sets
                           {"WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", port.text()}});
    pods.push_back(own);
  }
  run_together(commands, pods);
  volume.expect_golden_run(2, run_together(commands, pods));
}

}  // namespace
}  // namespace fsdp2::test
