/* LD_PRELOAD library that shifts two clocks of one process, and of its children, while it runs.
 *
 *   $CLOCKSHIFT_WALL  names a file with the seconds to add to the wall clock: CLOCK_REALTIME, gettimeofday, time
 *   $CLOCKSHIFT_BOOT  names a file with the seconds to add to CLOCK_BOOTTIME: what a suspended laptop sees on waking
 *
 * The files are read at every call, so that a test rewrites them and the clock jumps. CLOCK_MONOTONIC, sleeps and
 * timeouts are left alone: programs that wait correctly must not notice.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static char *wall_file, *boot_file;

/* The names are kept, not looked up again: PostgreSQL moves its environment about to write its process title. */
__attribute__((constructor)) static void remember_files(void)
{
    const char *wall = getenv("CLOCKSHIFT_WALL"), *boot = getenv("CLOCKSHIFT_BOOT");
    wall_file = wall ? strdup(wall) : NULL;
    boot_file = boot ? strdup(boot) : NULL;
}

/* "-7200.25" to nanoseconds. By hand: strtod follows the locale and may allocate, and we may be in a signal handler. */
static long long parse(const char *text)
{
    long long sign = 1, whole = 0, fraction = 0, unit = SECOND / 10;
    if (*text == '-' || *text == '+')
        sign = *text++ == '-' ? -1 : 1;
    while (*text >= '0' && *text <= '9')
        whole = whole * 10 + (*text++ - '0');
    if (*text == '.')
        for (text++; *text >= '0' && *text <= '9'; text++, unit /= 10)
            fraction += unit * (*text - '0');
    return sign * (whole * SECOND + fraction);
}

static long long shift(const char *file)
{
    char text[64];
    int saved = errno, fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    errno = saved;
    if (length <= 0)
        return 0;
    text[length] = 0;
    return parse(text);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    const char *file = NULL;
    if (syscall(SYS_clock_gettime, clock, out) != 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        file = wall_file;
    else if (clock == CLOCK_BOOTTIME)
        file = boot_file;
    if (file) {
        long long now = out->tv_sec * SECOND + out->tv_nsec + shift(file);
        out->tv_sec = now / SECOND;
        out->tv_nsec = now % SECOND;
        if (out->tv_nsec < 0) {
            out->tv_nsec += SECOND;
            out->tv_sec--;
        }
    }
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
