/* When callers get back what they lent: user_data through its release function, memory through a
 * DLPack deleter. Once, inside a call, and wherever the last use of it ends. */
#define _POSIX_C_SOURCE 200809L
#include <sys/wait.h>
#include <unistd.h>

#include "tests/capi/dlpack.h"
#include "tests/capi/tiny_model.h"

static const fsdp2_tensor kNone = {0};

/* Some call: on the null handle this does nothing. */
static void any_call(void) { EXPECT_OK(fsdp2_tensor_destroy(kNone)); }

struct lent {
  int64_t shape[1];
  float values[4];
  DLManagedTensorVersioned source;
  fsdp2_tensor next; /* which the deleter destroys */
  _Atomic int deleted;
  pthread_t deleted_by;
};

static _Thread_local int deleters_inside, most_inside;

static void note_deletion(DLManagedTensorVersioned* source) {
  struct lent* lent = (struct lent*)source->manager_ctx;
  if (++deleters_inside > most_inside) {
    most_inside = deleters_inside;
  }
  EXPECT_OK(fsdp2_tensor_destroy(lent->next));
  lent->deleted_by = pthread_self();
  ++lent->deleted;
  --deleters_inside;
}

static fsdp2_tensor lend(struct lent* lent) {
  fsdp2_tensor tensor = {0};
  memset(lent, 0, sizeof(*lent));
  lent->shape[0] = 4;
  lent->source = floats_of(lent->values, lent->shape);
  lent->source.manager_ctx = lent;
  lent->source.deleter = note_deletion;
  EXPECT_OK(fsdp2_tensor_from_dlpack(&lent->source, &tensor));
  return tensor;
}

/* The last view of what is lent, whose deleter is no call of the library. */
static DLManagedTensorVersioned* lend_to_a_view(struct lent* lent) {
  const fsdp2_tensor tensor = lend(lent);
  DLManagedTensorVersioned* view = NULL;
  EXPECT_OK(fsdp2_tensor_to_dlpack(tensor, 0, &view));
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  return view;
}

static void delete_view(void* view) {
  ((DLManagedTensorVersioned*)view)->deleter((DLManagedTensorVersioned*)view);
}

static void* delete_view_in_thread(void* view) {
  delete_view(view);
  return NULL;
}

static void run_thread(void* (*body)(void*), void* argument) {
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, body, argument) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
}

/* ---- outside of any call */

static void what_a_foreign_thread_lets_go_of_waits_for_a_call(void) {
  struct lent lent;
  run_thread(delete_view_in_thread, lend_to_a_view(&lent));
  EXPECT(lent.deleted == 0);
  any_call();
  EXPECT(lent.deleted == 1 && pthread_equal(lent.deleted_by, pthread_self()));
  any_call();
  EXPECT(lent.deleted == 1);
}

static pthread_key_t at_exit_of_thread;

static void* leave_view_to_the_exit(void* view) {
  EXPECT(pthread_setspecific(at_exit_of_thread, view) == 0);
  any_call(); /* so that this thread has a record to lose */
  return NULL;
}
static void what_a_threads_exit_lets_go_of_waits_for_a_call(void) {
  struct lent lent;
  EXPECT(pthread_key_create(&at_exit_of_thread, delete_view) == 0);
  run_thread(leave_view_to_the_exit, lend_to_a_view(&lent));
  EXPECT(lent.deleted == 0);
  any_call();
  EXPECT(lent.deleted == 1);
  EXPECT(pthread_key_delete(at_exit_of_thread) == 0);
}

static void a_fork_releases_nothing(void) {
  struct lent lent;
  pid_t child;
  int status = -1;
  delete_view(lend_to_a_view(&lent));
  child = fork();
  if (child == 0) {
    const fsdp2_status refused = fsdp2_tensor_destroy(kNone);
    _exit(refused == FSDP2_E_WRONG_STATE && lent.deleted == 0 ? 0 : 1);
  }
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(lent.deleted == 0);
  any_call();
  EXPECT(lent.deleted == 1);
}

/* ---- inside a call */

struct held {
  fsdp2_module module;
  fsdp2_shard shard;
  _Atomic int released;
};

/* Uses the model, which the call around it has left, and fails. */
static void use_model(void* user_data) {
  struct held* held = (struct held*)user_data;
  size_t count = 0;
  EXPECT_OK(fsdp2_shard_get_unit_count(held->shard, &count));
  EXPECT(count == 4);
  EXPECT_STATUS(fsdp2_shard_get_unit_index(held->shard, "nowhere", &count), FSDP2_E_NOT_FOUND);
  ++held->released;
}

static fsdp2_status accept_gradients(const fsdp2_all_reduce_info* info, fsdp2_tensor gradients,
                                     void* user_data) {
  (void)info, (void)gradients, (void)user_data;
  return FSDP2_OK;
}

static void a_release_may_use_the_model(void) {
  const fsdp2_mesh mesh = lone_mesh();
  struct held held;
  memset(&held, 0, sizeof(held));
  held.module = tiny_model();
  held.shard = shard_of(held.module, mesh);
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(held.shard, NULL, accept_gradients, &held, use_model));
  EXPECT_STATUS(fsdp2_tensor_destroy((fsdp2_tensor){5}), FSDP2_E_INVALID_HANDLE);
  EXPECT_OK(fsdp2_shard_set_all_reduce_hook(held.shard, NULL, NULL, NULL, NULL));
  EXPECT(held.released == 1);
  EXPECT_MESSAGE("never gave out"); /* the record is that of before */
  destroy_tiny(held.module, held.shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

enum { kChain = 1000 };

static void releases_that_cause_releases_run_one_after_the_other(void) {
  static struct lent chain[kChain];
  fsdp2_tensor tensor = {0};
  int i, deleted = 0;
  for (i = 0; i < kChain; ++i) {
    const fsdp2_tensor next = tensor;
    tensor = lend(&chain[i]);
    chain[i].next = next;
  }
  most_inside = 0;
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  for (i = 0; i < kChain; ++i) {
    deleted += chain[i].deleted;
  }
  EXPECT(deleted == kChain && most_inside == 1);
}

/* Lends and lets go inside a callback: this call is the last to need it. */
static fsdp2_status lend_inside(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                void* user_data) {
  struct lent first, second;
  const fsdp2_tensor tensor = lend(&first);
  (void)info, (void)gradient;
  EXPECT_OK(fsdp2_tensor_destroy(tensor));
  EXPECT(first.deleted == 1);
  delete_view(lend_to_a_view(&second)); /* inside backward, too */
  EXPECT(second.deleted == 0);
  any_call();
  EXPECT(second.deleted == 1);
  ++*(int*)user_data;
  return FSDP2_OK;
}
static void what_a_callback_lets_go_of_is_back_at_once(void) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  int calls = 0;
  EXPECT_OK(fsdp2_shard_set_gradient_ready(shard, NULL, 1, lend_inside, &calls, NULL));
  tiny_backward(module);
  EXPECT(calls == kTinyParameters);
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
}

/* ---- threads that end early */

static fsdp2_status refuse_gradient(const fsdp2_gradient_info* info, fsdp2_tensor gradient,
                                    void* user_data) {
  (void)info, (void)gradient, (void)user_data;
  return FSDP2_E_CANCELLED;
}
static void count_release(void* user_data) { ++*(_Atomic int*)user_data; }

static void* fail_backward(void* released) {
  const fsdp2_mesh mesh = lone_mesh();
  const fsdp2_module module = tiny_model();
  const fsdp2_shard shard = shard_of(module, mesh);
  fsdp2_tensor loss;
  EXPECT_OK(
      fsdp2_shard_set_gradient_ready(shard, NULL, 1, refuse_gradient, released, count_release));
  loss = tiny_loss(module, 0);
  EXPECT_STATUS(fsdp2_tensor_backward(loss), FSDP2_E_CALLBACK);
  EXPECT_OK(fsdp2_tensor_destroy(loss));
  destroy_tiny(module, shard);
  EXPECT_OK(fsdp2_mesh_destroy(mesh));
  return NULL;
}
static void a_thread_that_ends_after_a_failed_backward_leaves_nothing(void) {
  _Atomic int released = 0;
  run_thread(fail_backward, (void*)&released);
  any_call();
  EXPECT(released == 1);
}

static void be_cancelled(DLManagedTensorVersioned* source) {
  note_deletion(source);
  pthread_cancel(pthread_self());
  pthread_testcancel();
}

static void* be_cancelled_while_releasing(void* argument) {
  struct lent* lent = (struct lent*)argument;
  const fsdp2_tensor second = lend(&lent[1]), first = lend(&lent[0]);
  lent[0].next = second;
  lent[0].source.deleter = be_cancelled;
  EXPECT_OK(fsdp2_tensor_destroy(first));
  EXPECT(lent[0].deleted == 1 && lent[1].deleted == 1);
  pthread_testcancel();
  EXPECT(!"reached");
  return NULL;
}
static void a_call_whose_thread_is_cancelled_releases_all_that_it_owes(void) {
  static struct lent lent[2];
  run_thread(be_cancelled_while_releasing, lent);
  EXPECT(lent[0].deleted == 1 && lent[1].deleted == 1);
}

/* ---- many threads */

enum { kThreads = 4, kLent = 2000 };

static struct lent lent_by[kThreads][kLent];

/* Lets go inside and outside of calls, in turn, while the others do. */
static void* lend_often(void* argument) {
  struct lent* lent = (struct lent*)argument;
  int i;
  for (i = 0; i < kLent; ++i) {
    if (i % 2 == 0) {
      delete_view(lend_to_a_view(&lent[i]));
    } else {
      const fsdp2_tensor tensor = lend(&lent[i]);
      EXPECT_OK(fsdp2_tensor_destroy(tensor));
      EXPECT(lent[i].deleted == 1 && pthread_equal(lent[i].deleted_by, pthread_self()));
    }
  }
  return NULL;
}
static void four_threads_get_everything_back_once(void) {
  pthread_t threads[kThreads];
  int i, j, deleted = 0;
  for (i = 0; i < kThreads; ++i) {
    EXPECT(pthread_create(&threads[i], NULL, lend_often, lent_by[i]) == 0);
  }
  for (i = 0; i < kThreads; ++i) {
    EXPECT(pthread_join(threads[i], NULL) == 0);
  }
  any_call();
  for (i = 0; i < kThreads; ++i) {
    for (j = 0; j < kLent; ++j) {
      deleted += lent_by[i][j].deleted == 1;
    }
  }
  EXPECT(deleted == kThreads * kLent);
}

int main(void) {
  RUN(what_a_foreign_thread_lets_go_of_waits_for_a_call);
  RUN(what_a_threads_exit_lets_go_of_waits_for_a_call);
  RUN(a_fork_releases_nothing);
  RUN(a_release_may_use_the_model);
  RUN(releases_that_cause_releases_run_one_after_the_other);
  RUN(what_a_callback_lets_go_of_is_back_at_once);
  RUN(a_thread_that_ends_after_a_failed_backward_leaves_nothing);
  RUN(a_call_whose_thread_is_cancelled_releases_all_that_it_owes);
  RUN(four_threads_get_everything_back_once);
  return harness_result();
}
