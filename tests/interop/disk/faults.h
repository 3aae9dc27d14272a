// The faults of the disk that the recorder shows to the process.

#include <stdint.h>

struct control {
    // Of a thousand.
    uint32_t sync_fails;
    uint32_t is_full;
    // A synchronisation takes up to this, in microseconds.
    uint32_t sync_takes;
    // After something has failed nothing does, until the data of a file were synchronised.
    uint32_t is_alone;
    // EROFS, as from a file system that the kernel has made read-only after an error.
    uint32_t is_read_only;
    // Synchronisations begin, and end when this is 0.
    uint32_t is_stalled;
};

static volatile struct control *control;
// Below here, what the recorder's lock protects.
static uint64_t state = 88172645463325252ULL;
static int has_failed;

static uint64_t random_below(uint64_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return bound ? (state >> 11) % bound : 0;
}

static int fails(uint32_t share) {
    if (!share || (control->is_alone && has_failed) || random_below(1000) >= share) return 0;
    return has_failed = 1;
}
