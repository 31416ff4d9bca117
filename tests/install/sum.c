/* Out of the tree, C99: two ranks add up their rank numbers through the installed library. */
#include <stdio.h>
#include <treering/treering.h>

int main(void) {
  tr_comm_t comm;
  int rank = -1, size = -1;
  int32_t mine[3], sum[3];
  if (tr_comm_init_env(&comm) != TR_SUCCESS || tr_comm_rank(comm, &rank) != TR_SUCCESS ||
      tr_comm_size(comm, &size) != TR_SUCCESS) {
    fprintf(stderr, "%s\n", tr_get_last_error());
    return 1;
  }
  for (int i = 0; i < 3; ++i) mine[i] = rank + i;
  if (tr_all_reduce(mine, sum, 3, TR_INT32, TR_SUM, comm, NULL) != TR_SUCCESS ||
      tr_comm_destroy(comm) != TR_SUCCESS) {
    fprintf(stderr, "%s\n", tr_get_last_error());
    return 1;
  }
  printf("C rank %d of %d: %d %d %d\n", rank, size, (int)sum[0], (int)sum[1], (int)sum[2]);
  return 0;
}
