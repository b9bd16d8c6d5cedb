package rules

import (
	"github.com/cilium/ebpf/btf"

	"fulgur/internal/containers"
)

// NewBy is like [New], with a choice of the kernel side's key of a group.
func NewBy(byImage bool, r Rules, owners *containers.Tracker, program func(pid int, at uint64) string, types *btf.Cache) (*Judge, error) {
	return newJudge(byImage, r, owners, program, types)
}
