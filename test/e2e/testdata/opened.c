/*
 * Allocates memory in a function with a USDT probe, for each r on standard input, and prints how
 * often. After e, the first thread ends. Arguments change how others find its files: "ended" ends
 * the first thread, "chroot" changes the root to an empty directory, and "overlay" runs the
 * program, which must be linked statically, on an overlay in a mount namespace of its own. A
 * directory follows the last two.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ROUNDS 50

static long calls, bytes;
static sem_t end;

__attribute__((noinline)) void *by_malloc(long size)
{
	void *p = malloc(size);

	if (!p)
		abort();
	memset(p, 1, size);
	__asm__ volatile("990: nop\n"
			 ".pushsection .note.stapsdt,\"\",\"note\"\n"
			 ".balign 4\n"
			 ".4byte 992f-991f, 994f-993f, 3\n"
			 "991: .asciz \"stapsdt\"\n"
			 "992: .balign 4\n"
			 "993: .8byte 990b, 0, 0\n"
			 ".asciz \"fulgur\"\n.asciz \"opened\"\n.asciz \"\"\n"
			 "994: .balign 4\n"
			 ".popsection" ::
				 : "memory");
	calls++;
	bytes += size;
	return p;
}

static void *serve(void *unused)
{
	char command;

	(void)unused;
	do {
		dprintf(1, "calls %ld\nby_malloc_objects %ld\nby_malloc_bytes %ld\nend 0\n", calls,
			calls, bytes);
		if (read(0, &command, 1) != 1)
			exit(0);
		if (command == 'e')
			sem_post(&end);
		for (int i = 0; command == 'r' && i < ROUNDS; i++)
			free(by_malloc(1000 + i));
	} while (1);
}

static void fail(const char *what)
{
	dprintf(1, "%s %d\nend 0\n", what, errno);
	exit(1);
}

/* Runs this program below a directory with an overlay, without its first argument. */
static void run_on_overlay(const char *dir, char **argv)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fail("unshare");
	if (chdir(dir) || mkdir("upper", 0700) || mkdir("work", 0700) || mkdir("merged", 0700))
		fail("mkdir");
	if (mount("overlay", "merged", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work"))
		fail("overlay");
	if (chroot("merged") || chdir("/"))
		fail("chroot");
	execv("/opened", argv);
	fail("execv");
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int ended = 0;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "ended"))
			ended = 1;
		else if (!strcmp(argv[i], "chroot") && i + 1 < argc &&
			 (chroot(argv[++i]) || chdir("/")))
			fail("chroot");
		else if (!strcmp(argv[i], "overlay") && i + 1 < argc)
			run_on_overlay(argv[i + 1], argv + i + 1);
	}
	if (sem_init(&end, 0, ended))
		fail("sem_init");
	if (pthread_create(&thread, NULL, serve, NULL))
		fail("pthread_create");
	while (sem_wait(&end))
		;
	syscall(SYS_exit, 0);
}
