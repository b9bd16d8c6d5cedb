package waits

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, test := range []struct {
		want  Reason
		stack string // leaf first
	}{
		{"futex", "futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex do_syscall_64"},
		{"futex", "__schedule schedule futex_wait_queue futex_wait do_futex"},
		{"sleep", "schedule do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep"},
		{"pipe", "anon_pipe_read vfs_read ksys_read do_syscall_64"},
		{"pipe", "pipe_wait_readable anon_pipe_read vfs_read"},
		{"epoll", "schedule_hrtimeout_range ep_poll do_epoll_wait __x64_sys_epoll_wait"},
		{"poll", "do_poll.constprop.0 do_sys_poll __x64_sys_poll"},
		{"select", "do_select core_sys_select kern_select"},
		{"socket", "unix_stream_read_generic unix_stream_recvmsg sock_recvmsg sock_read_iter vfs_read ksys_read"},
		{"disk read", "io_schedule folio_wait_bit_common filemap_get_pages filemap_read vfs_read"},
		{"disk read", "bit_wait_io __iomap_dio_rw iomap_dio_rw ext4_file_read_iter vfs_read"},
		{"disk write", "__iomap_dio_rw iomap_dio_rw ext4_file_write_iter vfs_write"},
		{"page fault", "folio_wait_bit_common filemap_fault __do_fault handle_mm_fault do_user_addr_fault exc_page_fault"},
		{"pipe", "anon_pipe_write vfs_write ksys_write"},
		{"terminal", "n_tty_write tty_write vfs_write"},
		{"fsync", "jbd2_log_wait_commit ext4_sync_file do_fsync"},
		{"wait for child", "do_wait kernel_wait4 __do_sys_wait4"},
		{"io_uring", "io_cqring_wait __do_sys_io_uring_enter"},
		// What /proc tells of a thread: the function in which it waits, and the system call.
		{"poll", "poll_schedule_timeout __x64_sys_ppoll"},
		{"pipe", "anon_pipe_read __x64_sys_read"},
		{"signal", "__arm64_sys_rt_sigsuspend"},
		{Other, "__arm64_read"},
		{Yield, "do_sched_yield __x64_sys_sched_yield do_syscall_64"},
		{"kernel lock", "schedule_preempt_disabled __mutex_lock.constprop.0 do_something"},
		{"idle worker", "worker_thread kthread ret_from_fork ret_from_fork_asm"},
		{"kernel thread", "kauditd_thread kthread ret_from_fork ret_from_fork_asm"},
		{Other, "some_driver_wait do_syscall_64"},
		{Unknown, "__schedule schedule"},
		{Unknown, ""},
	} {
		if got := Of(strings.Fields(test.stack)); got != test.want {
			t.Errorf("%q: got %q, want %q", test.stack, got, test.want)
		}
	}
}

func TestOfRunnable(t *testing.T) {
	if got := OfRunnable([]string{"do_sched_yield", "do_syscall_64"}); got != Yield {
		t.Errorf("yielding thread: got %q, want %q", got, Yield)
	}
	if got := OfRunnable([]string{"anon_pipe_read", "vfs_read"}); got != Preempted {
		t.Errorf("thread reading a pipe: got %q, want %q", got, Preempted)
	}
}

func TestIs(t *testing.T) {
	for _, test := range []struct {
		function         string
		probe, interrupt bool
	}{
		{"bpf_prog_4ebb858f576e3568_offcpu_waking", true, false},
		{"bpf_trace_run1", true, false},
		{"__traceiter_sched_waking", true, false},
		{"asm_common_interrupt", false, true},
		{"asm_sysvec_apic_timer_interrupt", false, true},
		{"try_to_wake_up", false, false},
		{"", false, false},
	} {
		if p, i := IsProbe(test.function), IsInterrupt(test.function); p != test.probe || i != test.interrupt {
			t.Errorf("%s: got probe %t, interrupt %t; want %t, %t", test.function, p, i, test.probe, test.interrupt)
		}
	}
}

// A function in two rules would make the second entry unreachable.
func TestRulesAreDistinct(t *testing.T) {
	seen := map[string]Reason{}
	for _, r := range rules {
		for _, f := range r.functions {
			if before, ok := seen[f]; ok {
				t.Errorf("%s is in the rules of both %q and %q", f, before, r.reason)
			}
			seen[f] = r.reason
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add("futex_wait do_futex")
	f.Fuzz(func(t *testing.T, stack string) {
		if Of(strings.Split(stack, " ")) == "" {
			t.Error("got no reason")
		}
	})
}
