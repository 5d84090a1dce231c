/* Work that takes the same number of instructions each time, and how much of it fills a time. */
#include <stdint.h>
#include <time.h>

static volatile uint64_t sink;

static void burn(long rounds)
{
    uint64_t x = sink;
    while (rounds-- > 0)
        x = x * 6364136223846793005u + 1442695040888963407u;
    sink = x;
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Rounds of a second of CPU. The clock stands still while another program has the CPU. */
static double rounds_per_second(void)
{
    const long rounds = 2000000;
    double best = 0;
    for (int k = 0; k < 20; k++) {
        double began = seconds(CLOCK_PROCESS_CPUTIME_ID);
        burn(rounds);
        double rate = rounds / (seconds(CLOCK_PROCESS_CPUTIME_ID) - began);
        best = rate > best ? rate : best;
    }
    return best;
}
