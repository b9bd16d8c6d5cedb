// SPDX-License-Identifier: Apache-2.0
/*
 * reuse TURNS PROGRAM...: runs the programs in turn, TURNS times in total, each
 * time as a new process with the pid of the first one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	pid_t pid = 0;

	for (int turn = 0; turn < atoi(argv[1]); turn++) {
		struct clone_args args = {
			.exit_signal = SIGCHLD,
			/* The first process may have any pid. */
			.set_tid = pid ? (uintptr_t)&pid : 0,
			.set_tid_size = pid != 0,
		};
		pid_t child = syscall(SYS_clone3, &args, sizeof(args));
		int status;

		if (child == 0) {
			char *program = argv[2 + turn % (argc - 2)];

			execl(program, program, (char *)0);
			_exit(127);
		}
		if (child < 0 && errno == EEXIST) { /* Another process has it. */
			pid = 0;
			turn--;
			continue;
		}
		if (child < 0) {
			perror("clone3");
			return 1;
		}
		pid = child;
		if (waitpid(pid, &status, 0) != pid || status != 0)
			return 1;
	}
	return 0;
}
