package probe

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Kernel describes the features of the running kernel, according to its BTF.
type Kernel struct{ types *btf.Spec }

// NewKernel returns the running kernel. cache provides its BTF if already parsed. It
// may be nil.
func NewKernel(cache *btf.Cache) (Kernel, error) {
	if cache == nil {
		cache = btf.NewCache()
	}
	types, err := cache.Kernel()
	if err != nil {
		return Kernel{}, fmt.Errorf("read the kernel's types: %w", err)
	}
	return Kernel{types}, nil
}

// Tracepoint returns the types of a tracepoint's arguments, or false if the
// tracepoint does not exist.
func (k Kernel) Tracepoint(name string) ([]btf.Type, bool, error) {
	var t *btf.Typedef
	switch err := k.types.TypeByName("btf_trace_"+name, &t); {
	case errors.Is(err, btf.ErrNotFound):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("look for the tracepoint %s: %w", name, err)
	}
	pointer, isPointer := t.Type.(*btf.Pointer)
	if !isPointer {
		return nil, false, fmt.Errorf("the kernel's type of the tracepoint %s is %s", name, t.Type)
	}
	function, isFunction := pointer.Target.(*btf.FuncProto)
	if !isFunction || len(function.Params) == 0 {
		return nil, false, fmt.Errorf("the kernel's type of the tracepoint %s is a pointer to %s", name, pointer.Target)
	}
	var arguments []btf.Type
	for _, p := range function.Params[1:] { // the first is the tracer's own
		arguments = append(arguments, btf.UnderlyingType(p.Type))
	}
	slog.Debug("tracepoint", "name", name, "arguments", len(arguments))
	return arguments, true, nil
}

// HasHelper reports whether BPF programs can call a helper, such as "bpf_loop".
func (k Kernel) HasHelper(name string) (bool, error) {
	var ids *btf.Enum
	if err := k.types.TypeByName("bpf_func_id", &ids); err != nil {
		return false, fmt.Errorf("look for the functions of BPF programs: %w", err)
	}
	id := "BPF_FUNC_" + strings.TrimPrefix(name, "bpf_")
	has := slices.ContainsFunc(ids.Values, func(v btf.EnumValue) bool { return v.Name == id })
	slog.Debug("BPF helper", "name", name, "present", has)
	return has, nil
}
