/* The exchange by plain TCP, without a launcher: for experiments, where it is to be known how a rank waits.
 *
 *   RANK    its number, from 0
 *   RANKS   how many there are
 *   PEERS   names or addresses of all ranks before it, with a comma between two
 *   WAIT    spin: asks for data without a pause;  block: sleeps until there are some
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exchange.h"

#define PORT "7200"
enum { MOST = 64 };
static int peers[MOST], count, flags;

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static int quick(int peer)
{
    int yes = 1;
    setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return peer;
}

static int called(const char *address)
{
    struct addrinfo *there, kind = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    for (;; usleep(100000)) { /* it may start later */
        if (getaddrinfo(address, PORT, &kind, &there))
            continue;
        int peer = socket(AF_INET, SOCK_STREAM, 0);
        int refused = connect(peer, there->ai_addr, there->ai_addrlen);
        freeaddrinfo(there);
        if (!refused)
            return quick(peer);
        close(peer);
    }
}

void join(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    int rank = atoi(getenv("RANK")), ranks = atoi(getenv("RANKS"));
    flags = strcmp(getenv("WAIT"), "spin") ? 0 : MSG_DONTWAIT;
    if (ranks > MOST)
        give_up("too many ranks");
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(atoi(PORT)), .sin_addr.s_addr = INADDR_ANY};
    int yes = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (rank < ranks - 1 && (bind(listener, (struct sockaddr *)&here, sizeof here) || listen(listener, MOST)))
        give_up("listen");
    for (char *peer = strtok(getenv("PEERS"), ","); peer && count < rank; peer = strtok(NULL, ","))
        peers[count++] = called(peer);
    while (count < ranks - 1) {
        int peer = accept(listener, NULL, NULL);
        if (peer < 0)
            give_up("accept");
        peers[count++] = quick(peer);
    }
    close(listener);
}

long exchange(long mine)
{
    long least = mine;
    for (int k = 0; k < count; k++)
        if (send(peers[k], &mine, sizeof mine, MSG_NOSIGNAL) != sizeof mine)
            give_up("send");
    for (int k = 0; k < count; k++) {
        long theirs = 0;
        size_t have = 0;
        while (have < sizeof theirs) {
            ssize_t got = recv(peers[k], (char *)&theirs + have, sizeof theirs - have, flags);
            if (got > 0)
                have += got;
            else if (got == 0 || (errno != EAGAIN && errno != EINTR))
                give_up("a rank is gone");
        }
        least = theirs < least ? theirs : least;
    }
    return least;
}
