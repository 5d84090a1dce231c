/* A bulk-synchronous program: in each iteration every rank computes for the same time, then all exchange a number.
 *
 *   bsp MILLISECONDS        CPU time of a rank between two exchanges
 *
 * Some times a second it writes the number of iterations that are done into the file `progress` of the folder
 * PUNCTUAL_DIR (default: /punctual). It runs until it is ended.
 */
#include <stdio.h>
#include <stdlib.h>

#include "exchange.h"
#include "work.h"

static void report(const char *folder, long done)
{
    char path[4096], made[4096];
    snprintf(path, sizeof path, "%s/progress", folder);
    snprintf(made, sizeof made, "%s/progress.tmp", folder);
    FILE *file = fopen(made, "w");
    if (!file)
        return; /* a rank without the volume */
    fprintf(file, "%ld\n", done);
    fclose(file);
    rename(made, path);
}

int main(int argc, char **argv)
{
    join(&argc, &argv);
    if (argc != 2) {
        fprintf(stderr, "usage: %s MILLISECONDS\n", argv[0]);
        return 2;
    }
    const char *folder = getenv("PUNCTUAL_DIR") ? getenv("PUNCTUAL_DIR") : "/punctual";
    /* the slowest machine's, so that all do the same work */
    long rounds = 1e-3 * atof(argv[1]) * exchange((long)rounds_per_second());
    double reported = 0;
    for (long done = 0;;) {
        burn(rounds);
        exchange(done++);
        double now = seconds(CLOCK_MONOTONIC);
        if (now - reported >= 0.1) {
            report(folder, done);
            reported = now;
        }
    }
}
