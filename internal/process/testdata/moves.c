// Loads a library, prints "ready" and waits for a line. Then it puts other memory in the place of
// the library's code, or the code in another place, in the way that its second argument names. It
// prints the ID of a process and the address of a function there, which that process executes until
// it is killed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <err.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef unsigned long work(unsigned long);

static char *begin; // the pages of the library's code
static size_t size;

static work *load(const char *library)
{
	void *handle = dlopen(library, RTLD_NOW);
	if (!handle)
		errx(1, "%s", dlerror());
	work *found = (work *)dlsym(handle, "moved_outer");
	FILE *maps = fopen("/proc/thread-self/maps", "r");
	char line[4096];
	while (fgets(line, sizeof line, maps)) {
		unsigned long start, limit;
		if (sscanf(line, "%lx-%lx", &start, &limit) == 2 && start <= (unsigned long)found &&
		    (unsigned long)found < limit) {
			begin = (char *)start;
			size = limit - start;
		}
	}
	fclose(maps);
	return found;
}

// map maps writable memory at the pages of the library's code.
static void map(int flags, int fd)
{
	if (mmap(begin, size, PROT_READ | PROT_WRITE, MAP_FIXED | flags, fd, 0) == MAP_FAILED)
		err(1, "mmap");
}

static work *volatile shared; // for the child of clone

__attribute__((noreturn)) static int child(void *arg)
{
	(void)arg;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!shared)
		;
	for (;;)
		shared(10000);
}

static const char *library, *way;

static int run(void)
{
	int cloned = !strcmp(way, "clone"), pid = getpid();
	int moves = !strcmp(way, "moved") || !strcmp(way, "ended");
	work *f = cloned ? NULL : load(library);
	if (cloned) { // the library is not loaded yet
		size_t stack = 1 << 20;
		char *top = (char *)malloc(stack) + stack;
		pid = clone(child, top, CLONE_VM | SIGCHLD, NULL);
		if (pid < 0)
			err(1, "clone");
	} else {
		f(10000);
	}
	puts("ready");
	fflush(stdout);
	if (getchar() == EOF)
		return 0;
	char *code = malloc(size), deleted[] = "/tmp/moves-XXXXXX";
	if (!cloned)
		memcpy(code, begin, size);
	long shift = 0;
	int prot = PROT_READ | PROT_EXEC;
	if (cloned) {
		shared = load(library);
		f = shared;
	} else if (moves) {
		char *to = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (mremap(begin, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to + size) ==
		    MAP_FAILED)
			err(1, "mremap");
		f = (work *)(to + size + ((char *)f - begin));
	} else if (!strcmp(way, "anonymous")) {
		map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	} else if (!strncmp(way, "elsewhere", 9)) {
		char *to = mmap(NULL, 3 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		f = (work *)(to + size + ((char *)f - begin));
		begin = to + size;
		if (mprotect(begin, size, PROT_READ | PROT_WRITE))
			err(1, "mprotect");
		if (!strcmp(way, "elsewhere, other code"))
			code[size / 2] ^= 1;
	} else if (!strcmp(way, "shared")) {
		map(MAP_SHARED | MAP_ANONYMOUS, -1);
	} else if (!strcmp(way, "memfd")) {
		int fd = memfd_create("code", 0);
		if (ftruncate(fd, size))
			err(1, "ftruncate");
		map(MAP_SHARED, fd);
	} else if (!strcmp(way, "deleted")) { // such as a file of huge pages
		int fd = mkstemp(deleted);
		if (fd < 0 || unlink(deleted) || ftruncate(fd, size))
			err(1, "temporary file");
		map(MAP_SHARED, fd);
	} else if (!strcmp(way, "shifted")) { // other code, with many of the same bytes
		map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
		shift = 64;
	} else if (!strcmp(way, "writable")) { // it may change at any time
		map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
		prot |= PROT_WRITE;
	} else {
		errx(2, "%s", way);
	}
	if (!cloned && !moves) {
		memcpy(begin + shift, code, size - shift);
		__builtin___clear_cache(begin, begin + size);
		if (mprotect(begin, size, prot))
			err(1, "mprotect");
		f = (work *)((char *)f + shift);
	}
	printf("%d %lx\n", pid, (unsigned long)f);
	fflush(stdout);
	if (cloned) {
		while (getchar() != EOF)
			;
		kill(pid, SIGKILL);
		return 0;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		f(10000);
}

static void *thread(void *unused)
{
	(void)unused;
	exit(run());
}

int main(int argc, char **argv)
{
	pthread_t other;

	if (argc < 3)
		return 2;
	library = argv[1];
	way = argv[2];
	if (strcmp(way, "ended"))
		return run();
	if (pthread_create(&other, NULL, thread, NULL)) /* the first thread ends */
		return 2;
	pthread_exit(NULL);
}
