#include "core/comm/meet/place.h"

#include <gtest/gtest.h>

#include <map>

#include "core/base/error.h"

namespace fsdp2 {
namespace {

using Variables = std::map<std::string, std::string>;

Place find(const WorldOptions& options, const Variables& variables) {
  return find_place(options, [&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

std::string error_of(const WorldOptions& options, const Variables& variables) {
  try {
    find(options, variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.message();
  }
  return "no error";
}

WorldOptions at(const std::string& rendezvous, int rank = -1, int world_size = -1) {
  WorldOptions options;
  options.rendezvous = rendezvous;
  options.rank = rank;
  options.world_size = world_size;
  return options;
}

TEST(Place, NothingGivenIsAWorldOfOneThatMeetsNobody) {
  const Place place = find({}, {});
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.meeting, Meeting::kNowhere);
}

TEST(Place, ReadsTorchrunsVariables) {
  const Place place = find({}, {{"RANK", "3"},
                                {"WORLD_SIZE", "4"},
                                {"LOCAL_RANK", "1"},
                                {"MASTER_ADDR", "node0"},
                                {"MASTER_PORT", "1234"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                {"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.meeting, Meeting::kTcp);
  EXPECT_EQ(place.where, "node0");
  EXPECT_EQ(place.port, 1234);
  EXPECT_TRUE(place.launcher_hosts_store);
  EXPECT_EQ(place.key_prefix, "attempt2");
}

TEST(Place, KubernetesStyleVariablesNeedNoLocalRank) {
  const Place place = find({}, {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "head"}});
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.port, 29500);
  EXPECT_FALSE(place.launcher_hosts_store);
  EXPECT_EQ(place.key_prefix, "");
}

TEST(Place, ReadsSlurmsVariables) {
  const Variables slurm = {{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};
  const auto head = [&](const std::string& nodes) {
    Variables variables = slurm;
    variables["SLURM_STEP_NODELIST"] = nodes;
    return find({}, variables).where;
  };
  EXPECT_EQ(head("node7"), "node7");
  EXPECT_EQ(head("node7,node9"), "node7");
  EXPECT_EQ(head("node[07-10,12]"), "node07");
  EXPECT_EQ(head("node[3,5]"), "node3");
  EXPECT_EQ(head("a1,b[3,5]"), "a1");
  Variables variables = slurm;
  variables["MASTER_ADDR"] = "head";
  const Place place = find({}, variables);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.where, "head");
}

TEST(Place, AnAllocationWithoutATaskNumberIsNoLauncher) {
  EXPECT_EQ(find({}, {{"SLURM_NTASKS", "8"}}).size, 1);
}

TEST(Place, OpenMpiGoesBeforeSlurmAndNeedsNoAddressOnOneMachine) {
  const Place place = find({}, {{"OMPI_COMM_WORLD_RANK", "1"},
                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"SLURM_PROCID", "0"},
                                {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.where, "127.0.0.1");
}

TEST(Place, ExplicitNumbersGoBeforeTheEnvironmentOutsideOfEnv) {
  const Variables torchrun = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}};
  const Place place = find(at("thread://job", 3, 4), torchrun);
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 3);
  EXPECT_EQ(place.meeting, Meeting::kThreads);
  EXPECT_EQ(place.where, "job");
}

TEST(Place, TcpAndFile) {
  const Place tcp = find(at("tcp://10.0.0.1:29501", 0, 2), {});
  EXPECT_EQ(tcp.meeting, Meeting::kTcp);
  EXPECT_EQ(tcp.where, "10.0.0.1");
  EXPECT_EQ(tcp.port, 29501);
  EXPECT_EQ(find(at("tcp://[::1]:80", 0, 2), {}).where, "::1");
  const Place file = find(at("file:///tmp/x"), {{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(file.meeting, Meeting::kFile);
  EXPECT_EQ(file.where, "/tmp/x");
  EXPECT_EQ(file.rank, 1);
}

TEST(Place, AnIpv6AddressMayHaveBracketsInTheEnvironment) {
  const Variables two = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (const char* address : {"[fd00::1]", "fd00::1"}) {
    Variables variables = two;
    variables["MASTER_ADDR"] = address;
    EXPECT_EQ(find({}, variables).where, "fd00::1");
  }
}

TEST(Place, OneRankMeetsNobodyHoweverItIsLaunched) {
  EXPECT_EQ(find({}, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}).meeting, Meeting::kNowhere);
  EXPECT_EQ(find(at("tcp://host:1", 0, 1), {}).meeting, Meeting::kNowhere);
}

TEST(Place, MalformedNumbersAreNamed) {
  EXPECT_EQ(error_of({}, {{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
            "RANK='one': expected a whole number from 0 to 2147483647");
  EXPECT_EQ(error_of({}, {{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "WORLD_SIZE='0': expected a whole number from 1 to 2147483647");
  EXPECT_EQ(error_of({}, {{"RANK", "99999999999"}, {"WORLD_SIZE", "2"}}),
            "RANK='99999999999': expected a whole number from 0 to 2147483647");
  EXPECT_EQ(error_of({}, {{"RANK", ""}, {"WORLD_SIZE", "2"}}),
            "RANK='': expected a whole number from 0 to 2147483647");
  EXPECT_EQ(
      error_of(
          {}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      "MASTER_PORT='70000': expected a whole number from 1 to 65535");
}

TEST(Place, NumbersThatDoNotFitAreNamed) {
  EXPECT_EQ(error_of({}, {{"RANK", "2"}, {"WORLD_SIZE", "2"}}),
            "RANK=2 is not a rank of WORLD_SIZE=2 (ranks start at 0)");
  EXPECT_EQ(error_of({}, {{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2 without a rank: set RANK too");
  EXPECT_EQ(error_of({}, {{"RANK", "1"}}), "RANK=1 without a number of ranks: set WORLD_SIZE too");
  EXPECT_EQ(error_of(at("file:///x", 1), {}),
            "rank=1 without a number of ranks: set world_size too");
  EXPECT_EQ(error_of(at("file:///x", -1, 4), {}), "world_size=4 without a rank: set rank too");
  EXPECT_EQ(error_of(at("", -3), {}), "rank is -3: expected -1 (not given), 0 or more");
  EXPECT_EQ(error_of(at("", 0, 0), {}), "world_size is 0: expected at least one rank");
}

TEST(Place, OptionsMayNotContradictTheEnvironmentUnderEnv) {
  const Variables torchrun = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
  EXPECT_EQ(find(at("env://", 1, 2), torchrun).rank, 1);
  EXPECT_EQ(error_of(at("env://", 0, 2), torchrun),
            "rank 0 was asked for, but the environment says RANK=1");
  EXPECT_EQ(error_of(at("", -1, 4), torchrun),
            "world_size 4 was asked for, but the environment says WORLD_SIZE=2");
}

TEST(Place, JobsOfOneSlurmNodeMeetAtDifferentPorts) {
  Variables slurm = {{"SLURM_PROCID", "0"},    {"SLURM_NTASKS", "2"},
                     {"SLURM_LOCALID", "0"},   {"SLURM_STEP_NODELIST", "n1"},
                     {"SLURM_JOB_ID", "1234"}, {"SLURM_STEP_ID", "0"}};
  const int port = find({}, slurm).port;
  EXPECT_EQ(port, 20000 + 7 * 1234);
  slurm["SLURM_JOB_ID"] = "1235";
  EXPECT_NE(find({}, slurm).port, port);
  slurm["SLURM_STEP_ID"] = "1";
  EXPECT_NE(find({}, slurm).port, port);
  slurm["MASTER_PORT"] = "4567";
  EXPECT_EQ(find({}, slurm).port, 4567);
}

TEST(Place, SeveralRanksNeedAnAddress) {
  EXPECT_EQ(error_of({}, {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "MASTER_ADDR is not set: 2 ranks need the address of rank 0's machine to meet at");
}

TEST(Place, MalformedRendezvousIsNamed) {
  EXPECT_EQ(error_of(at("nowhere"), {}),
            "rendezvous 'nowhere': expected env://, tcp://host:port, file:///path, "
            "thread://name or fake://");
  EXPECT_EQ(
      error_of(at("http://x"), {}),
      "rendezvous 'http://x': unknown scheme 'http', expected env, tcp, file, thread or fake");
  EXPECT_EQ(error_of(at("tcp://host", 0, 2), {}),
            "rendezvous 'tcp://host': expected tcp://host:port");
  EXPECT_EQ(error_of(at("tcp://host:x", 0, 2), {}),
            "port in rendezvous tcp://host:x='x': expected a whole number from 1 to 65535");
  EXPECT_EQ(error_of(at("file://relative", 0, 2), {}),
            "rendezvous 'file://relative': expected an absolute path, file:///path");
  EXPECT_EQ(error_of(at("thread://job"), {{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
            "rendezvous 'thread://job': ranks as threads need an explicit rank and world_size");
}

}  // namespace
}  // namespace fsdp2
