/* How ranks find each other, and exchange a number. */

/* Returns once all ranks are there. */
void join(int *argc, char ***argv);

/* Sends a number to all other ranks, and returns the least that any rank has sent, once all have. */
long exchange(long mine);
