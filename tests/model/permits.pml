/* The permit protocol once more, for spin: named callers instead of counted ones, processes instead of a list of steps.

   Written apart from protocol.py, so that a mistake in one of the two is seen. Each caller is a process that asks,
   reports or vanishes; a clock lets time pass; an operator acts. Once `healthy` is set, the remote answers well,
   operators and vanishing callers are gone, and the circuit must close (I7, the claim at the end).

   spin -search -DWRONG_... permits.pml   must find the fault that the name tells. */

#ifndef CALLERS
#define CALLERS 3
#endif
#ifndef PROBES
#define PROBES 1
#endif
#ifndef SUCCESSES
#define SUCCESSES 1
#endif
#define FAILURES 2
#define COOLDOWN 2
#define LEASE 2
#define NEVER 99            /* a wait that only an operator ends */
#define NOBODY 255

mtype = { closed, open, half_open };
mtype = { none, plain, probe, lost, late };
mtype = { success, failure, neutral };

mtype state = closed;
mtype holds[CALLERS] = none;
byte failures = 0;
byte good = 0;
byte wait = 0;
bool forced = false;
bool healthy = false;

/* Slots: one per caller and one more, so that a fault can overfill them; `owner` is who may still report. */
#define SLOTS (PROBES + 2)
bool used[SLOTS] = false;
byte lease[SLOTS] = 0;
byte owner[SLOTS] = NOBODY;

/* What is only there to be checked. */
byte live = 0;              /* probes started that have not ended */
byte s;
byte n;

inline count_live() {
    n = 0;
    for (s : 0 .. SLOTS - 1) { if :: used[s] && lease[s] > 0 -> n++ :: else fi };
    assert(n <= PROBES);                                                        /* I1 */
    n = 0;
    for (s : 0 .. SLOTS - 1) { if :: used[s] -> n++ :: else fi };
    assert(n == live);                                                          /* I15 */
    s = 0; n = 0
}

/* A new episode: everybody who holds a permit is late, every slot is free. */
inline move(to) {
    state = to;
    failures = 0; good = 0; forced = false; wait = 0;
    for (s : 0 .. CALLERS - 1) { if :: holds[s] != none -> holds[s] = late :: else fi };
    for (s : 0 .. SLOTS - 1) {
        if :: used[s] -> used[s] = false; lease[s] = 0; owner[s] = NOBODY; live-- :: else fi
    };
    s = 0
}

inline trip() { move(open); wait = COOLDOWN }

inline free_slot_of(me) {
    for (s : 0 .. SLOTS - 1) {
        if :: used[s] && owner[s] == me -> used[s] = false; lease[s] = 0; owner[s] = NOBODY; live-- :: else fi
    };
    s = 0
}

inline drop_lost() {
    for (s : 0 .. SLOTS - 1) {
        if
        :: used[s] && lease[s] == 0 ->
            if :: owner[s] != NOBODY -> holds[owner[s]] = lost :: else fi;
            used[s] = false; owner[s] = NOBODY; live--
        :: else
        fi
    };
    s = 0
}

inline take_slot(me) {
    n = 0;
    for (s : 0 .. SLOTS - 1) { if :: used[s] -> n++ :: else fi };
    if
#ifdef WRONG_NO_CAP
    :: n < SLOTS ->
#else
    :: n < PROBES ->
#endif
        s = 0;
        do :: used[s] -> s++ :: else -> break od;
        used[s] = true; lease[s] = LEASE; owner[s] = me; live++; holds[me] = probe
    :: else
    fi;
    s = 0; n = 0
}

inline ask(me) {
    if
    :: state == closed -> holds[me] = plain
#ifdef WRONG_TOO_EARLY
    :: state == open && wait <= 1 -> assert(wait == 0); move(half_open); take_slot(me)
#else
    :: state == open && wait == 0 -> move(half_open); take_slot(me)
#endif
    :: state == half_open -> drop_lost(); take_slot(me)
    :: else
    fi
}

/* What a probe of this episode says decides. */
inline decide(said) {
    if
    :: said == failure -> trip()
    :: said == success ->
        good++;
        if :: good >= SUCCESSES -> move(closed) :: else fi
    :: else
    fi
}

inline report(me, said) {
    if
    :: holds[me] == plain ->
        holds[me] = none;
        assert(state == closed);                                                /* a permit of this episode is no late one */
        if
        :: said == failure ->
            failures++;
            assert(failures <= FAILURES);                                       /* I5: never beyond the limit */
#ifdef WRONG_LOSES_THE_LAST
            if :: failures > FAILURES -> trip() :: else fi
#else
            if :: failures == FAILURES -> trip() :: else fi
#endif
        :: said == success -> failures = 0
        :: else
        fi
    :: holds[me] == probe ->
        assert(state == half_open);                                             /* I3 */
        holds[me] = none;
#ifdef WRONG_NEUTRAL_KEEPS
        if :: said != neutral -> free_slot_of(me) :: else -> for (s : 0 .. SLOTS - 1) { if :: owner[s] == me -> lease[s] = NEVER :: else fi }; s = 0 fi;
#else
        free_slot_of(me);
#endif
        decide(said)
    :: holds[me] == lost ->
        assert(state == half_open);
        holds[me] = none;
        decide(said)
    :: holds[me] == late ->
        holds[me] = none;
#ifdef WRONG_LATE_CLOSES
        if :: said == success && state == open -> assert(wait == 0); move(closed) :: else fi
#endif
        skip                                                                    /* I6: it changes nothing */
    :: else
    fi
}

proctype Caller(byte me) {
    do
    :: atomic { holds[me] == none && (!healthy || state != closed) -> ask(me); count_live() }
    :: atomic { holds[me] != none -> report(me, success); count_live() }
    :: atomic { holds[me] != none && !healthy -> report(me, failure); count_live() }
    :: atomic { holds[me] != none && !healthy -> report(me, neutral); count_live() }
    :: atomic { holds[me] != none && !healthy ->                                /* it will never report */
            for (s : 0 .. SLOTS - 1) { if :: used[s] && owner[s] == me -> owner[s] = NOBODY :: else fi };
            s = 0; holds[me] = none; count_live() }
    od
}

inline pass_time() {
    if :: wait > 0 && wait < NEVER -> wait-- :: else fi;
    for (s : 0 .. SLOTS - 1) {
#ifndef WRONG_NO_LEASE
        if :: used[s] && lease[s] > 0 && lease[s] < NEVER -> lease[s]-- :: else fi
#else
        skip
#endif
    };
    s = 0
}

active proctype Clock() {
    do
    :: atomic { pass_time(); count_live() }
    od
}

active proctype Operator() {
    do
    :: atomic { !healthy && state != closed -> move(closed); count_live() }
    :: atomic { !healthy -> move(open); forced = true; wait = NEVER; count_live() }
    :: atomic { !healthy -> move(open); forced = true; wait = 1; count_live() }
    :: atomic { forced -> move(closed); count_live() }
    :: atomic { !healthy && !(forced && wait == NEVER) -> healthy = true }
    od
}

init {
    byte i;
    atomic { for (i : 0 .. CALLERS - 1) { run Caller(i) } }
}

ltl gets_well { [] (healthy -> <> (state == closed)) }                          /* I7 */
