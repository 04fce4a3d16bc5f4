// What a command tells of a job that it has run.
#include "cli/machine/training_job.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "cli/machine/scratch_directory.h"

namespace fsdp2::cli {
namespace {

// A job of a script in the place of fsdp2.
JobEnd run_script(const std::string& script, double timeout_s = 60) {
  const ScratchDirectory scratch("fsdp2-job");
  TrainingJob job;
  job.program = scratch.write("fsdp2", "#!/bin/sh\n" + script + "\n");
  EXPECT_EQ(chmod(job.program.c_str(), 0700), 0);
  job.ranks = 2;
  job.arguments = {"--steps", "3"};
  job.variables = {{"WORDS", "cannot go on"}};
  job.timeout_s = timeout_s;
  return run_job(job);
}

TEST(TrainingJob, ReadsMetricsAmongOtherLines) {
  const JobEnd job = run_script(R"(echo '{"event": "step", "step": 0}'
      echo hello; echo '[1]'; echo '{"event": "step"'
      echo '{"event": "step", "step": 1}'
      echo '{"event": "summary", "of": "'$2 $3 $7'"}')");
  EXPECT_TRUE(job.is_well());
  ASSERT_EQ(job.steps.size(), 2U);
  EXPECT_EQ(job.steps[1].at("step"), 1);
  EXPECT_EQ(job.summary.at("of"), "--nproc-per-node 2 --steps");
}

TEST(TrainingJob, IsNotWellWithoutASummary) { EXPECT_FALSE(run_script("exit 0").is_well()); }

TEST(TrainingJob, TellsTheFirstMessageOfATrainer) {
  const JobEnd job = run_script(R"(echo starts >&2
      echo "[rank 1] fsdp2 train: rank 1: $WORDS" >&2
      echo "[rank 0] fsdp2 train: rank 1 has failed" >&2
      echo "fsdp2 run: rank 1 failed" >&2; exit 1)");
  EXPECT_EQ(job.cause(), "fsdp2 train: rank 1: cannot go on");
  EXPECT_EQ(run_script("echo no such machine >&2; exit 1").cause(), "no such machine");
}

TEST(TrainingJob, TellsThatTheTimeWasUpWhateverATrainerSaid) {
  const JobEnd job = run_script("echo 'fsdp2 train: slowly' >&2; sleep 100", 6);
  EXPECT_EQ(job.cause(), "fsdp2 train: slowly; it did not end in time");
}

}  // namespace
}  // namespace fsdp2::cli
