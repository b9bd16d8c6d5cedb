// Package syscalls has the numbers of system calls by the names that the kernel's
// tracepoints use.
package syscalls

import (
	"strings"
	"sync"
)

// Number returns the number of the system call with the tracepoints sys_enter_NAME and
// sys_exit_NAME. NAME is the name of the kernel's function, such as "newstat" for stat(2). It
// returns false for a call that is unknown, such as one of a newer kernel.
func Number(name string) (uint32, bool) {
	n, ok := numbers()[name]
	return n, ok
}

// Function returns the name of the kernel's function for a system call of a 64-bit program, such as "__x64_sys_newstat". It
// returns "" for a number that is unknown.
func Function(number int) string {
	if name := names()[uint32(number)]; name != "" && number >= 0 {
		return prefix + name
	}
	return ""
}

var names = sync.OnceValue(func() map[uint32]string {
	all := map[uint32]string{}
	for name, n := range numbers() {
		all[n] = name
	}
	return all
})

var numbers = sync.OnceValue(func() map[string]uint32 {
	all := map[string]uint32{}
	for first, list := range map[uint32]string{0: own, firstCommon: common} {
		for i, name := range strings.Fields(list) {
			if name != unassigned {
				all[name] = first + uint32(i)
			}
		}
	}
	return all
})

// unassigned stands for numbers without a call.
const unassigned = "-"

// firstCommon is the first number that all architectures share.
const firstCommon = 424

// common are the calls from firstCommon on, in the order of their numbers; see the kernel's
// scripts/syscall.tbl.
const common = `
pidfd_send_signal io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
fsconfig fsmount fspick pidfd_open clone3 close_range openat2 pidfd_getfd faccessat2
process_madvise epoll_pwait2 mount_setattr quotactl_fd landlock_create_ruleset landlock_add_rule
landlock_restrict_self memfd_secret process_mrelease futex_waitv set_mempolicy_home_node
cachestat fchmodat2 map_shadow_stack futex_wake futex_wait futex_requeue statmount listmount
lsm_get_self_attr lsm_set_self_attr lsm_list_modules mseal setxattrat getxattrat listxattrat
removexattrat open_tree_attr file_getattr file_setattr listns rseq_slice_yield
`
