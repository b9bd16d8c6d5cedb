package main

import (
	"context"

	"fulgur/internal/capture/locks"
)

// locksCommand has the flags of the commands that write profiles.
type locksCommand struct {
	Only string `enum:"both,user,kernel" default:"both" placeholder:"SIDE" group:"what" help:"Measure only the locks of programs (user: futexes) or of the kernel (kernel; needs Linux 5.19). Default: both."`
	subjectFlags

	WakerStacks bool   `group:"how" help:"Show the stack that woke each thread, usually by releasing the lock, upside down on top of the stack of the wait."`
	Owners      bool   `group:"how" help:"Show the thread that held a lock of the kernel when a wait for it began: mutexes, and semaphores held for writing."`
	MaxRate     *count `placeholder:"N" group:"how" help:"Measure at most N waits per second on each CPU, to protect the target. Default: 100000."`

	profileFlags
	PendingEntries *count `placeholder:"N" group:"limit" help:"Maximum number of waits in progress to track."`
}

// Help returns the text of fulgur locks --help besides the flags.
func (*locksCommand) Help() string {
	return `Measures the time that threads wait for locks, by the stack of the waiting thread, with
the lock on top: [lock cgroup_mutex], [futex file.c:pool_lock]. It sees waits for locks of the
kernel, and waits of programs for futexes, which mutexes, condition variables and
semaphores use.
The summary lists the locks with the longest waits. docs/locks.md has the details.

Examples:

    # contention of a process, as a flame graph
    sudo fulgur locks -p 1234 -o locks.html 10

    # locks of the kernel, for the whole machine
    sudo fulgur locks --only kernel 10

    # a process, with the owners of kernel locks and the stacks that end the waits
    sudo fulgur locks --owners --waker-stacks -p 1234 -o locks.html 10

    # mutexes of a command
    sudo fulgur locks --only user -- make -j8
`
}

// sides are the values of --only.
var sides = map[string]locks.Side{"both": locks.Both, "user": locks.User, "kernel": locks.Kernel}

func (c *locksCommand) run(ctx context.Context, env environment) (int, error) {
	return env.measure(ctx, c.subjectFlags, c.profileFlags, locks.New(locks.Config{
		Side:           sides[c.Only],
		WakerStacks:    c.WakerStacks,
		Owners:         c.Owners,
		MaxRate:        uint64(orZero(c.MaxRate)),
		PendingEntries: uint32(orZero(c.PendingEntries)),
	}))
}
