/* Loaded before libfaketime, whose version 0.9.10 takes an absolute time of the monotonic clock for a time of day: the
 * time.sleep of every Python program then fails with EINVAL. Sleeps go to the kernel instead; they do not depend on the
 * time of day. */
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left)
{
    return syscall(SYS_clock_nanosleep, clock, flags, until, left) == 0 ? 0 : errno;
}
