/* Records in JSON lines through the C ABI, on one rank. */
#include "tests/capi/harness.h"

static const char kRecords[] =
    "{\"prompt\": \"ab\", \"response\": \"c\"}\n"
    "{\"text\": \"xy\"}\n"
    "no record\n";

static fsdp2_status open_records(fsdp2_mesh mesh, int32_t skip_bad_records, fsdp2_loader* out) {
  fsdp2_loader_options options = FSDP2_LOADER_OPTIONS_INIT;
  const char* path = temporary_path("records.jsonl");
  write_file(path, kRecords, strlen(kRecords));
  options.format = FSDP2_TOKENS_RECORDS;
  options.sequence_length = 6;
  options.global_batch = 1;
  options.vocab_size = 384;
  options.skip_bad_records = skip_bad_records;
  return fsdp2_loader_open(mesh, path, &options, out);
}

static void numbers_are(fsdp2_tensor tensor, const int64_t* expected) {
  int64_t found[6] = {0};
  EXPECT_OK(fsdp2_tensor_read(tensor, found, sizeof(found)));
  EXPECT(memcmp(found, expected, sizeof(found)) == 0);
}

static void records_have_labels_for_answers_and_positions_of_their_own(void) {
  static const int64_t tokens[6] = {'a', 'b', 'c', 'x', 'y', 0};
  static const int64_t labels[6] = {-100, 'c', 0, 'y', 0, -100};
  static const int64_t positions[6] = {0, 1, 2, 0, 1, 0};
  struct job job = start_lone_job();
  fsdp2_step_result result;
  fsdp2_tensor batch[3] = {{0}, {0}, {5}}, changed = {0};
  int i;
  EXPECT_OK(fsdp2_loader_destroy(job.loader));
  EXPECT_OK(open_records(job.mesh, 1, &job.loader));
  EXPECT_STATUS(fsdp2_loader_get_positions(job.loader, &batch[2]), FSDP2_E_WRONG_STATE);
  EXPECT(batch[2].id == 5);
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &changed));
  EXPECT_OK(fsdp2_tensor_write(changed, tokens, sizeof(tokens)));
  EXPECT_OK(fsdp2_tensor_destroy(changed));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &batch[2]));
  numbers_are(batch[0], tokens);
  numbers_are(batch[1], labels);
  numbers_are(batch[2], positions);
  memset(&result, 0, sizeof(result));
  result.struct_size = (uint32_t)sizeof(result);
  EXPECT_OK(fsdp2_step_run(job.step, batch, 3, &result));
  EXPECT(result.applied == 1 && result.n_tokens == 6 && result.n_labels == 4);
  for (i = 0; i < 3; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
  }
  end_lone_job(&job);
}

static void tokens_have_positions_from_the_beginning_of_their_row(void) {
  struct job job = start_lone_job();
  fsdp2_tensor batch[3] = {{0}, {0}, {0}};
  int64_t positions[8][32];
  int i;
  EXPECT_OK(fsdp2_loader_next(job.loader, &batch[0], &batch[1]));
  EXPECT_OK(fsdp2_loader_get_positions(job.loader, &batch[2]));
  EXPECT_OK(fsdp2_tensor_read(batch[2], positions, sizeof(positions)));
  for (i = 0; i < 8 * 32; ++i) {
    EXPECT(positions[i / 32][i % 32] == i % 32);
  }
  for (i = 0; i < 3; ++i) {
    EXPECT_OK(fsdp2_tensor_destroy(batch[i]));
  }
  end_lone_job(&job);
}

static void a_bad_line_is_told(void) {
  fsdp2_mesh mesh = lone_mesh();
  fsdp2_loader loader = {5};
  EXPECT_STATUS(open_records(mesh, 0, &loader), FSDP2_E_CORRUPT_DATA);
  EXPECT_MESSAGE("records.jsonl: line 3: is not JSON");
  EXPECT(loader.id == 5);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

int main(void) {
  RUN(records_have_labels_for_answers_and_positions_of_their_own);
  RUN(tokens_have_positions_from_the_beginning_of_their_row);
  RUN(a_bad_line_is_told);
  return harness_result();
}
