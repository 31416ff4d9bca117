/* The FIFO of transports/fifo.hpp: one writer, READERS readers, a few lines, slots that change their size,
 * an abort at any moment, and a second communicator after it. LINKS.md numbers the invariants.
 *
 * Checked: every reader gets every message, in order, whole, and only once it is complete (assertions at
 * the reads); nothing is overwritten before every reader is done with it (assertions at the writes); nobody
 * waits for ever (no invalid end state).
 *
 * Steps are interleaved one memory access at a time. That a release store makes the writes before it
 * visible is taken for granted here and tested with ThreadSanitizer; what is proven is the order in which
 * the accesses are made, and the credit.
 *
 * Each -DBREAK_... weakens one rule; test_model.py shows that each is found. */

#ifndef READERS
#define READERS 1
#endif
#ifndef MESSAGES
#define MESSAGES 5
#endif
#ifndef EPOCHS
#define EPOCHS 2  /* communicators, one after the other */
#endif
#define LINES 2   /* kFifoLines */
#define UNITS 2   /* data area: two slots of one unit, or one slot of two units */

#ifdef BREAK_SAME_SEGMENT
#define SEGMENT(e) 0  /* the second communicator gets the first one's memory, cleared by the writer */
#else
#define SEGMENT(e) (e)
#endif

/* What memory holds: 0, or which message of which communicator. */
#define ID(e, m) ((e) * 8 + (m) + 1)

byte units_of[MESSAGES];        /* of message m: 0 inline, else the size of its slot; both ends know */
byte tail[EPOCHS * LINES];
byte line[EPOCHS * LINES];      /* the inline payload */
byte unit[EPOCHS * UNITS];      /* the data area */
byte head[EPOCHS * READERS];
byte done[EPOCHS * READERS];    /* not in memory: messages that the reader has read in truth */
bool aborted = false;           /* of the first communicator */
bool planned = false;

#define LINE(e, m) (SEGMENT(e) * LINES + (m) % LINES)
#define SLOTS(size) (UNITS / (size))
#define UNIT(e, m, size, i) (SEGMENT(e) * UNITS + ((m) % SLOTS(size)) * (size) + (i))

/* A message may be overwritten when all readers are done with it. */
inline assert_read(id) {
  d_step {
    if
    :: id > 0 && (id - 1) / 8 == e ->
      k = 0;
      do
      :: k < READERS -> assert(done[e * READERS + k] > (id - 1) % 8); k++
      :: else -> break
      od
    :: else
    fi;
    k = 0
  }
}

proctype Writer() {
  byte e = 0, m, released, lowest, k, i, size, slot, window, seen;
  (planned);
  do
  :: e == EPOCHS -> break
  :: else ->
    d_step { m = 0; released = 0; slot = 0 }
#ifdef BREAK_SAME_SEGMENT
    k = 0;
    do
    :: e > 0 && k < LINES -> tail[k] = 0; k++
    :: else -> break
    od;
    k = 0;
    do
    :: e > 0 && k < READERS -> head[k] = 0; k++
    :: else -> k = 0; break
    od;
#endif
    do
    :: m == MESSAGES -> break
    :: else ->
      d_step {
        size = units_of[m];
        if
        :: size == 0 -> window = LINES
        :: else -> window = SLOTS(size)
        fi
      }
      do
      :: d_step {  /* credit, by the heads seen last */
#ifdef BREAK_CREDIT
           m - released <= window &&
#else
           m - released < window &&
#endif
#ifdef BREAK_NO_DRAIN
           true
#else
           (size == 0 || slot == size || released == m)
#endif
           -> if :: size > 0 -> slot = size :: else fi
         }
         break
      :: else ->  /* look at the heads, one by one */
        d_step { lowest = m; seen = 0; k = 0 }
        do
        :: k < READERS ->
          d_step {
            seen = seen + head[SEGMENT(e) * READERS + k];
#ifdef BREAK_FIRST_READER
            if :: k == 0 -> lowest = head[SEGMENT(e) * READERS] :: else fi;
#else
            if
            :: head[SEGMENT(e) * READERS + k] < lowest -> lowest = head[SEGMENT(e) * READERS + k]
            :: else
            fi;
#endif
            k++
          }
        :: else -> break
        od;
        atomic { assert(lowest <= m); assert(lowest >= released); k = 0 }
        if
        :: lowest > released -> atomic { released = lowest; seen = 0; lowest = 0 }
        :: else ->
          if  /* wait until a head moves */
          :: head[SEGMENT(e) * READERS] + head[SEGMENT(e) * READERS + READERS - 1] * (READERS - 1) != seen ->
             atomic { seen = 0; lowest = 0 }
          :: e == 0 && aborted -> goto next_communicator
          fi
        fi
      od;
#ifdef BREAK_POST_FIRST
      tail[LINE(e, m)] = m + 1;
#endif
      if
      :: size == 0 ->
        atomic { assert_read(line[LINE(e, m)]); line[LINE(e, m)] = ID(e, m) }
      :: else ->
        i = 0;
        do
        :: i < size ->
          atomic { assert_read(unit[UNIT(e, m, size, i)]); unit[UNIT(e, m, size, i)] = ID(e, m); i++ }
        :: else -> i = 0; break
        od
      fi;
#ifndef BREAK_POST_FIRST
      tail[LINE(e, m)] = m + 1;
#endif
      m++
    od;
next_communicator:
    skip;
    d_step { e++; size = 0; window = 0; seen = 0; lowest = 0 }
  od
}

proctype Reader(byte me) {
  byte e = 0, m, i, size;
  (planned);
  do
  :: e == EPOCHS -> break
  :: else ->
    m = 0;
    do
    :: m == MESSAGES -> break
    :: else ->
      if
      :: tail[LINE(e, m)] == m + 1
      :: e == 0 && aborted -> goto next_communicator
      fi;
#ifdef BREAK_RELEASE_FIRST
      head[SEGMENT(e) * READERS + me] = m + 1;
#endif
      size = units_of[m];
      if
      :: size == 0 -> assert(line[LINE(e, m)] == ID(e, m))
      :: else ->
        i = 0;
        do
        :: i < size -> d_step { assert(unit[UNIT(e, m, size, i)] == ID(e, m)); i++ }
        :: else -> i = 0; break
        od
      fi;
      done[e * READERS + me] = m + 1;
#ifndef BREAK_RELEASE_FIRST
      head[SEGMENT(e) * READERS + me] = m + 1;
#endif
      m++
    od;
next_communicator:
    skip;
    d_step { e++; size = 0 }
  od
}

init {
  byte k = 0;
  /* Every sequence of inline messages and slots of both sizes. */
  do
  :: k < MESSAGES -> if :: units_of[k] = 0 :: units_of[k] = 1 :: units_of[k] = 2 fi; k++
  :: else -> break
  od;
  atomic {
    run Writer();
    k = 0;
    do
    :: k < READERS -> run Reader(k); k++
    :: else -> break
    od;
    planned = true
  }
  if  /* at any moment from here on, or never */
  :: aborted = true
  :: skip
  fi
}
