/* The return addresses of the program's functions that lead to the current call, for findings.
 *
 * The unwinder needs less than a microsecond, so every call collects them; Python reads them when it
 * makes something or finds a mistake (acl/call_sites.py). */

#include <unwind.h>

#define MAX_FRAMES 4
#define OWN_FRAMES 6  /* of this library, at most, before the program's */

static _Thread_local Word frames[MAX_FRAMES];  /* the innermost first */
static _Thread_local int frame_count;          /* 0 outside of a call */

typedef struct {
    Word *frames;
    int room, count, own;
    Word first;  /* the frame that is collected first */
} Walk;

static _Unwind_Reason_Code collect(struct _Unwind_Context *context, void *argument) {
    Walk *walk = argument;
    const Word address = (Word)_Unwind_GetIP(context);
    if (walk->count == 0 && address != walk->first) return ++walk->own > OWN_FRAMES ? _URC_END_OF_STACK : _URC_NO_REASON;
    walk->frames[walk->count++] = address;
    return walk->count == walk->room ? _URC_END_OF_STACK : _URC_NO_REASON;
}

/* Collect the frames from `first` on; returns their number. Without unwind tables, `first` is the only one. */
static int walk_from(Word first, Word *target, int room) {
    Walk walk = {target, room, 0, 0, first};
    _Unwind_Backtrace(collect, &walk);
    if (walk.count == 0) target[walk.count++] = first;
    return walk.count;
}

/* Collect the frames of a call that returns to `caller`, into the library's function that the program called. */
static void collect_frames(Word caller) { frame_count = walk_from(caller, frames, MAX_FRAMES); }

/* Copy this thread's frames; returns their number. Python calls it, with the GIL held. */
static int read_frames(uint64_t *target, int room) {
    for (int i = 0; i < frame_count && i < room; i++) target[i] = frames[i];
    return frame_count < room ? frame_count : room;
}
