// Package bpf holds fulgur's kernel side: the C sources of its programs, and their tests. The
// objects compiled from them for amd64 and arm64 and the Go bindings are in internal/bpf. They
// are committed, so that building fulgur needs Go alone; "make generate" makes them again, byte
// for byte.
//
// One .bpf.c file is one family of probes. The common parts are headers with one subject each,
// which compile alone:
//
//   - which samples count: gate.h (when), target.h (of which tasks), rules.h (of which processes among
//     these), task.h and epoch.h (identity)
//   - stacks: stack.h (interned ones), scratch.h (where they are walked), unwind.h (walks of user
//     stacks), unwind_walk.h (the walk itself, which tests compile for user space), unwind_state.h,
//     unwind_env.h and unwind_maps.h (what it works on), orc.h (kernel stacks of threads that
//     wait), wait.h (the states of threads that wait), snapshot.h (stacks to walk later)
//   - frames of language runtimes: runtime.h, with python.h, v8.h, hotspot.h and ruby.h, which
//     share runtime_frames.h and runtime_maps.h; program.h (runtimes of new processes)
//   - labels: labels.h, with label_set.h, context.h and label_maps.h
//   - what crosses into user space: record.h, ring.h, seen.h (what was sent), count.h (counts of
//     stacks), event.h (events of a timeline), histogram.h (distributions of times), file.h (names of
//     files), loss.h (what was lost)
//   - events that users choose: hit.h (hits), field.h (their fields), parts.h (what threads do between
//     two of them)
//
// A family may define SCRATCHES and UNWIND_BLOCK_BYTES before its first include. ksym.bpf.c is no
// probe: it looks up kernel symbols.
//
// The bindings repeat a family's types for each machine, some 1400 lines in all. bpf2go writes the
// types, the names and the object of a target into one file, and has no option to write types
// alone. A file of types for all machines (-target bpfel) would need an object and a load function
// of its own, and a kernel.h that has no registers.
package bpf

//go:generate -command compile go tool bpf2go -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Wextra -Wno-unused-parameter -Werror -mcpu=v3 -fdebug-prefix-map=.=bpf" -target amd64,arm64 -go-package bpf -output-dir ../internal/bpf -no-global-types
//go:generate compile -type stack_record -type rule_match -type rule_limit -type thinned -type code_head -type label -type label_record -type thread_context -type snapshot -type count_key -type count_value -type timeline_event -type stat -type stack_end -type frame_bit -type gate_times -type seen_set -type record_type -type target_mode -type unwind_mode OnCPU oncpu.bpf.c
//go:generate compile -type count_key -type count_value -type timeline_event -type thread -type thread_kind -type thread_time -type state_class -type histogram -type peer -type peer_kind OffCPU offcpu.bpf.c
//go:generate compile -type count_key -type count_value -type timeline_event -type page_kind -type file_record -type path_end Faults faults.bpf.c
//go:generate compile -type count_key -type count_value -type timeline_event -type request_flag -type request_state -type latency_key -type histogram BlockIO blockio.bpf.c
//go:generate compile -type count_key -type count_value SoftIRQ softirq.bpf.c
//go:generate compile -type count_key -type count_value -type timeline_event -type field -type field_from -type field_string -type field_compare -type filter_term -type field_limits -type syscall_key Count count.bpf.c
//go:generate compile -type count_key -type count_value -type timeline_event -type interval -type interval_key -type waker -type owner -type part_kind -type part_bit -type part_limits -type progress -type slow_interval -type slowest_list -type shown_fields -type latency_match -type histogram -type histogram_limits Latency latency.bpf.c
//go:generate compile -type count_key -type count_value -type trap_counts -type alloc_program -type probe_limits Alloc alloc.bpf.c
//go:generate compile -type count_key -type count_value -type goroutine -type goroutine_wait -type hit_counts -type goroutine_program -type goroutine_limit Goroutine goroutine.bpf.c
//go:generate compile -type branch_head Branch branch.bpf.c
//go:generate compile -type jump_cookie -type jump_limit -type jump_breakpoint -type jump_thread -type jump_count -type jump_operand -type jump_target -type executed Jump jump.bpf.c
//go:generate compile PIDNS pidns.bpf.c
//go:generate compile -type rule_process -type rule_task Rules rules.bpf.c
//go:generate compile -type symbol -type context KSym ksym.bpf.c
//go:generate compile -type unwind_rule -type unwind_mapping -type unwind_process -type unwind_page_state -type unwind_asking -type unwind_request -type unwind_task -type label_process -type label_kind -type runtime_process -type runtime_program -type runtime_range -type runtime_file -type runtime_program_limit -type python_process -type v8_process -type hotspot_heap -type hotspot_process -type hotspot_bytes -type ruby_process -type runtime_local -type runtime_local_model -type runtime_kind -type python_thread -type python_entry -type unwind_kind -type unwind_chain -type unwind_slot -type unwind_rule_index -type unwind_request_type -type unwind_shift -type unwind_rows -type unwind_layout_bits -type hash_constant Unwind unwind.bpf.c
