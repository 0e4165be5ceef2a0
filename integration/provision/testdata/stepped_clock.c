// Preloaded into a server: its wall clock is off by the number of microseconds at the
// beginning of the file STEPPED_CLOCK. The monotonic clocks stay as they are.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *shared;

static int64_t offset_us(void) {
	if (!shared) {
		const char *name = getenv("STEPPED_CLOCK");
		int fd = name ? open(name, O_RDONLY) : -1;
		void *p = fd >= 0 ? mmap(NULL, sizeof *shared, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
		if (fd >= 0)
			close(fd);
		if (p == MAP_FAILED)
			abort();
		shared = p;
	}
	return *shared;
}

int clock_gettime(clockid_t id, struct timespec *t) {
	int result = syscall(SYS_clock_gettime, id, t);
	if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
		int64_t us = t->tv_sec * INT64_C(1000000) + t->tv_nsec / 1000 + offset_us();
		t->tv_sec = us / 1000000;
		t->tv_nsec = us % 1000000 * 1000 + t->tv_nsec % 1000;
	}
	return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
	struct timespec now;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &now) != 0)
		return -1;
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
