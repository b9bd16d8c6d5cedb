package waits

// rule assigns a reason to stacks that contain one of the functions.
type rule struct {
	reason Reason
	// functions are names, or prefixes that end with "*". Those of system calls lack the prefix of the architecture.
	functions []string
}

// rules are in order of precedence: the first rule that matches any function of a
// stack applies. Specific rules come first: a page fault that reads a disk is a page
// fault. The names are from Linux 6.1 to 6.18.
var rules = []rule{
	{Yield, []string{"do_sched_yield", "__do_sys_sched_yield", "sys_sched_yield"}},

	// Stopped by a tracer or a signal.
	{"traced", []string{"ptrace_stop", "ptrace_do_notify"}},
	{"stopped", []string{"do_signal_stop", "do_jobctl_trap", "do_freezer_trap", "__refrigerator"}},

	// Memory.
	{"memory reclaim", []string{
		"try_to_free_pages", "shrink_node", "shrink_lruvec", "throttle_direct_reclaim", "reclaim_throttle", "mem_cgroup_oom*",
		"mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high", "try_to_free_mem_cgroup_pages", "do_swap_page", "swap_readpage",
	}},
	{"dirty throttling", []string{"balance_dirty_pages*", "wbt_wait", "__wbt_wait", "rq_qos_wait"}},
	{"page fault", []string{
		"handle_mm_fault", "__handle_mm_fault", "exc_page_fault", "do_user_addr_fault", "do_page_fault", "do_mem_abort",
		"filemap_fault", "faultin_page", "handle_userfault",
	}},

	// Files and disks.
	{"fsync", []string{
		"do_fsync", "vfs_fsync_range", "__do_sys_fsync", "ksys_sync_file_range", "ksys_sync", "jbd2_log_wait_commit", "jbd2_complete_transaction",
		"xfs_log_force*", "btrfs_sync_file", "ext4_sync_file",
		"sys_fsync", "sys_fdatasync",
	}},
	{"network file system", []string{"rpc_wait_bit_killable", "nfs_wait_bit_killable", "nfs4_*", "nfs_*", "cifs_*", "smb2_*"}},
	{"fuse", []string{"request_wait_answer", "fuse_simple_request", "__fuse_simple_request", "fuse_dev_do_read"}},
	{"io_uring", []string{"io_cqring_wait", "io_sq_thread", "__do_sys_io_uring_enter", "sys_io_uring_enter"}},
	{"asynchronous I/O", []string{"read_events", "do_io_getevents", "sys_io_getevents", "sys_io_pgetevents"}},
	{"file lock", []string{"locks_lock_inode_wait", "posix_lock_inode_wait", "flock_lock_inode_wait", "fcntl_setlk", "do_lock_file_wait", "sys_flock"}},

	// Pipes, sockets and polling, which reads and writes also pass through.
	{"pipe", []string{"pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write", "fifo_pipe_read", "fifo_pipe_write", "pipe_wait*", "wait_for_partner", "fifo_open"}},
	{"epoll", []string{"ep_poll", "do_epoll_wait", "do_epoll_pwait", "sys_epoll_wait", "sys_epoll_pwait", "sys_epoll_pwait2"}},
	{"poll", []string{"do_sys_poll", "do_poll", "__do_sys_poll", "__do_sys_ppoll", "sys_poll", "sys_ppoll"}},
	{"select", []string{"do_select", "core_sys_select", "kern_select", "do_pselect", "sys_select", "sys_pselect6"}},
	{"accept", []string{"inet_csk_accept", "do_accept", "unix_accept", "__sys_accept4", "sys_accept", "sys_accept4"}},
	{"connect", []string{"__sys_connect", "inet_wait_for_connect", "sys_connect"}},
	{"socket", []string{
		"unix_stream_read_generic", "unix_stream_sendmsg", "unix_dgram_*", "sock_recvmsg", "sock_sendmsg", "__sock_sendmsg", "sock_read_iter",
		"sock_write_iter", "tcp_recvmsg*", "tcp_sendmsg*", "sk_wait_data", "sk_stream_wait_memory", "__skb_wait_for_more_packets",
		"__sys_recvfrom", "__sys_sendto", "___sys_recvmsg", "___sys_sendmsg", "__sys_recvmsg", "__sys_sendmsg", "vsock_*", "netlink_*",
		"sys_recvfrom", "sys_sendto", "sys_recvmsg", "sys_sendmsg", "sys_recvmmsg", "sys_sendmmsg",
	}},
	{"terminal", []string{"n_tty_read", "n_tty_write", "tty_read", "tty_write", "tty_wait_until_sent"}},
	{"event file", []string{
		"eventfd_read", "eventfd_write", "timerfd_read*", "signalfd_read*", "inotify_read", "fanotify_read", "perf_read", "do_syslog",
		"syslog_print", "devkmsg_read",
	}},
	{"message queue", []string{"do_msgrcv", "do_msgsnd", "do_mq_timedreceive", "do_mq_timedsend", "wq_sleep", "sys_msgrcv", "sys_msgsnd", "sys_mq_timedreceive", "sys_mq_timedsend"}},
	{"semaphore", []string{"do_semtimedop", "__do_semtimedop", "sys_semop", "sys_semtimedop"}},

	// Other threads and time.
	{"futex", []string{"futex_wait*", "__futex_wait", "do_futex", "futex_do_wait", "futex_lock_pi", "__futex_lock_pi", "sys_futex", "sys_futex_wait", "sys_futex_waitv"}},
	{"wait for child", []string{"do_wait", "kernel_wait4", "__do_sys_wait4", "kernel_waitid", "__do_sys_waitid", "do_wait_pid", "sys_wait4", "sys_waitid"}},
	{"vfork", []string{"wait_for_vfork_done", "sys_vfork"}},
	{"signal", []string{"do_sigtimedwait", "sigsuspend", "__do_sys_pause", "sys_pause", "__do_sys_rt_sigsuspend", "sys_rt_sigsuspend", "sys_rt_sigtimedwait"}},
	{"sleep", []string{"do_nanosleep", "hrtimer_nanosleep", "common_nsleep*", "msleep*", "usleep_range*", "sys_nanosleep", "sys_clock_nanosleep"}},
	{"virtual CPU", []string{"kvm_vcpu_block", "kvm_vcpu_halt", "kvm_vcpu_ioctl"}},
	{"exit", []string{"do_exit", "do_group_exit", "exit_mm", "coredump_wait", "wait_for_dump_helpers"}},

	// The kernel's own threads.
	{"idle worker", []string{"worker_thread", "rescuer_thread", "smpboot_thread_fn", "io_wq_worker", "kthread_worker_fn"}},
	{"journal", []string{"kjournald2", "xfsaild", "jbd2_*", "transaction_kthread"}},

	// The remaining reads, locks and so on.
	{"kernel lock", []string{
		"__mutex_lock*", "mutex_lock*", "rwsem_down_read_slowpath", "rwsem_down_write_slowpath", "down_read*", "down_write*", "__down*", "down",
		"down_interruptible", "down_killable", "rt_mutex_slowlock*", "percpu_rwsem_wait", "__percpu_down_read", "wait_on_inode", "bit_wait",
	}},
	{"disk queue", []string{"blk_mq_get_tag", "__blk_mq_alloc_requests", "blk_mq_freeze_queue_wait"}},
	{"disk write", []string{
		"vfs_write", "ksys_write", "do_writepages", "wb_writeback", "ext4_file_write_iter", "iomap_dio_rw_write", "ksys_pwrite64", "do_pwritev",
		"generic_perform_write",
	}},
	{"disk read", []string{
		"folio_wait_bit*", "wait_on_page_bit*", "filemap_read", "filemap_get_pages", "generic_file_buffered_read", "submit_bio_wait", "bio_await",
		"bio_wait_for_completion*", "__iomap_dio_rw", "iomap_dio_rw", "blkdev_direct_IO*", "__blkdev_direct_IO*", "do_direct_IO", "dio_await_completion",
		"bit_wait_io", "__wait_on_buffer", "ext4_bread*", "ext4_file_read_iter", "blkdev_read_iter", "squashfs_*", "vfs_read", "ksys_read",
	}},
	{gracePeriod, []string{"synchronize_rcu*", "synchronize_srcu*", "__wait_rcu_gp", "__synchronize_srcu", "rcu_barrier", "sync_rcu_exp_*"}},
	{"completion", []string{"wait_for_completion*", "__wait_for_common"}},
	{"kernel thread", []string{"kthread", "ret_from_fork*"}},
}
