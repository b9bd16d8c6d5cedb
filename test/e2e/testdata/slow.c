/*
 * Handles requests, and delays one of REQUESTS / DELAYS: it waits for a timer, for a lock that another thread
 * holds, for the CPU that another thread uses, reads a file past the page cache, or computes. It keeps its own
 * account of the requests. Each time has two bounds, read outside and inside of what it measures.
 *
 *	slow [FILE LENGTHS]
 *
 * reads FILE, of at least a MiB, and writes the bounds of the length of each request to LENGTHS.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define REQUESTS 2000
#define DELAYS 40
#define DELAY 30000000L /* ns, longer than OVER */
#define QUICK 100000L
#define OVER 20000000L

typedef long long ns;

static ns clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static ns now(void) { return clock_ns(CLOCK_MONOTONIC); }
static ns cpu(void) { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

static int schedstat;

/* The time that this thread has waited for a CPU, as the kernel keeps it. */
static ns run_delay(void)
{
	char text[100];
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);
	ns ran, delay;

	if (n <= 0)
		return 0;
	text[n] = 0;
	return sscanf(text, "%lld %lld", &ran, &delay) == 2 ? delay : 0;
}

static long switches_so_far(void)
{
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	return used.ru_nvcsw + used.ru_nivcsw;
}

/* Steal time of all CPUs, and time in interrupts, in ns. */
static ns stolen(void)
{
	long long t[8] = { 0 };
	FILE *f = fopen("/proc/stat", "r");

	if (!f || fscanf(f, "cpu %lld %lld %lld %lld %lld %lld %lld %lld", t, t + 1, t + 2, t + 3,
			 t + 4, t + 5, t + 6, t + 7) != 8)
		exit(3);
	fclose(f);
	return (t[5] + t[6] + t[7]) * (1000000000LL / sysconf(_SC_CLK_TCK));
}

/* The bounds of the time off the CPU. */
struct bounds {
	ns least, most;
};

static struct bounds naps, locks, reads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t held;
static volatile int sharing, done;

static void spin(ns time)
{
	ns until = cpu() + time;

	while (cpu() < until)
		;
}

#define PART __attribute__((noinline, noclone))

PART void quick_part(void)
{
	spin(QUICK);
	__asm__ volatile("");
}

PART void spin_part(void)
{
	spin(DELAY);
	__asm__ volatile("");
}

PART void share_part(void)
{
	spin(DELAY);
	__asm__ volatile("");
}

PART void nap_part(void)
{
	struct timespec t = { 0, DELAY };
	ns used = cpu(), before = now(), inside;

	nanosleep(&t, NULL);
	inside = now() - before;
	naps.least += inside - (cpu() - used);
}

PART void lock_part(void)
{
	ns used = cpu(), before = now(), inside;

	pthread_mutex_lock(&lock);
	inside = now() - before;
	locks.least += inside - (cpu() - used);
	pthread_mutex_unlock(&lock);
}

static int file = -1;

PART void read_part(void)
{
	static char buffer[1 << 20];
	ns used = cpu(), before = now(), inside;

	do {
		posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
		if (pread(file, buffer, sizeof(buffer), 0) <= 0)
			exit(4);
	} while (now() - before < DELAY);
	inside = now() - before;
	reads.least += inside - (cpu() - used);
}

enum kind { QUICKLY, NAP, LOCK, SPIN, SHARE, READ, KINDS };

/* What the request itself measures. */
static struct {
	ns wall, cpu, delay;
} inside;

PART void handle(enum kind kind)
{
	ns wall = now(), used = cpu(), delay = run_delay(), before;

	switch (kind) {
	case NAP:
		before = now();
		nap_part();
		naps.most += now() - before;
		break;
	case LOCK:
		before = now();
		lock_part();
		locks.most += now() - before;
		break;
	case READ:
		before = now();
		read_part();
		reads.most += now() - before;
		break;
	case SPIN:
		spin_part();
		break;
	case SHARE:
		share_part();
		break;
	default:
		quick_part();
	}
	inside.delay = run_delay() - delay;
	inside.cpu = cpu() - used;
	inside.wall = now() - wall;
}

/* Holds the lock for a while, once for each turn of the barrier. */
static void *hold(void *unused)
{
	struct timespec t = { 0, DELAY };

	for (;;) {
		pthread_barrier_wait(&held);
		if (done)
			return unused;
		pthread_mutex_lock(&lock);
		pthread_barrier_wait(&held);
		nanosleep(&t, NULL);
		pthread_mutex_unlock(&lock);
	}
}

/* Shares the CPU of the requests. */
static void *share(void *unused)
{
	while (!done) {
		struct timespec t = { 0, 200000 };

		if (sharing)
			spin(QUICK);
		else
			nanosleep(&t, NULL);
	}
	return unused;
}

int main(int argc, char **argv)
{
	ns least_time = 0, most_time = 0, least_cpu = 0, most_cpu = 0, delays = 0, most_quick = 0,
	   longest = 0, steal = stolen();
	int least = 0, most = 0, kinds = KINDS, i;
	FILE *lengths = NULL;
	long switches = 0;
	pthread_t holder, sharer;
	cpu_set_t allowed;

	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (i = 0; i < CPU_SETSIZE && !CPU_ISSET(i, &allowed); i++)
		;
	CPU_ZERO(&allowed);
	CPU_SET(i, &allowed);
	sched_setaffinity(0, sizeof(allowed), &allowed);
	if (argc == 3) {
		file = open(argv[1], O_RDONLY);
		lengths = fopen(argv[2], "w");
	}
	if (file < 0 || !lengths)
		kinds = READ;
	schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	pthread_barrier_init(&held, NULL, 2);
	pthread_create(&holder, NULL, hold, NULL);
	pthread_create(&sharer, NULL, share, NULL);
	for (i = 0; i < REQUESTS; i++) {
		enum kind kind = QUICKLY;
		ns wall, used, outside;
		long switched;

		if (i % (REQUESTS / DELAYS) == REQUESTS / DELAYS / 2)
			kind = NAP + i / (REQUESTS / DELAYS) % (kinds - NAP);
		if (kind == LOCK) {
			pthread_barrier_wait(&held);
			pthread_barrier_wait(&held); /* the other thread has the lock */
		}
		sharing = kind == SHARE;
		if (sharing) { /* the other thread has noticed */
			struct timespec t = { 0, 1000000 };

			nanosleep(&t, NULL);
		}
		switched = switches_so_far();
		used = cpu();
		wall = now();
		handle(kind);
		outside = now() - wall;
		used = cpu() - used;
		sharing = 0;
		if (lengths)
			fprintf(lengths, "%lld %lld\n", inside.wall, outside);
		if (inside.wall >= OVER) {
			least++;
			least_time += inside.wall;
			least_cpu += inside.cpu;
		}
		if (outside >= OVER) {
			most++;
			most_time += outside;
			most_cpu += used;
			delays += inside.delay;
			switches += switches_so_far() - switched;
			longest = outside > longest ? outside : longest;
			if (kind == QUICKLY)
				most_quick += outside;
		}
	}
	done = 1;
	pthread_barrier_wait(&held);
	pthread_join(holder, NULL);
	pthread_join(sharer, NULL);
	printf("requests %d\ndelayed %d\n", REQUESTS, DELAYS);
	printf("least %d\nmost %d\nleast_time %lld\nmost_time %lld\n", least, most, least_time,
	       most_time);
	printf("least_cpu %lld\nmost_cpu %lld\ndelays %lld\nmost_quick %lld\nlongest %lld\n",
	       least_cpu, most_cpu, delays, most_quick, longest);
	printf("least_nap %lld\nmost_nap %lld\nleast_lock %lld\nmost_lock %lld\n", naps.least,
	       naps.most, locks.least, locks.most);
	printf("least_read %lld\nmost_read %lld\n", reads.least, reads.most);
	if (lengths && fclose(lengths))
		return 5;
	/* /proc/stat counts in ticks. */
	printf("stolen %lld\nswitches %ld\n", stolen() - steal + 1000000000LL / sysconf(_SC_CLK_TCK),
	       switches);
	return 0;
}
