package branches

import (
	"context"
	"errors"
	"fmt"

	"fulgur/internal/bolt"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/perfdata"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// checkBinary rejects a chosen binary if it is a kernel where a program is wanted, or the
// other way round.
func (o *ProfileOptions) checkBinary(b *bolt.Binary) error {
	switch {
	case o.Kernel && !b.Kernel():
		return fmt.Errorf("%s is not a kernel: give the vmlinux of the recorded kernel", plain.Terminal(b.Name))
	case b.Kernel() && o.Samples == "":
		return fmt.Errorf("%s is a kernel: fulgur can make only profiles for clang (AutoFDO) of kernels", plain.Terminal(b.Name))
	}
	return nil
}

// kernelFinder finds the vmlinux of the kernel in the input of a conversion.
type kernelFinder struct {
	ctx    context.Context
	binary *bolt.Binary // nil before it is found
	err    error        // why it was not found
}

// find returns the kernel among mapped files.
func (k *kernelFinder) find(m perfdata.Mapped) *bolt.Binary {
	if !m.IsKernel() || k.binary != nil {
		return nil
	}
	if m.BuildID == "" {
		k.err = fmt.Errorf("the input has no build ID of the kernel: give its vmlinux with %s", usage.Binary)
		return nil
	}
	k.binary, k.err = findVmlinux(k.ctx, m.BuildID)
	return k.binary
}

// findVmlinux finds the kernel with a build ID.
func findVmlinux(ctx context.Context, buildID string) (*bolt.Binary, error) {
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		return nil, err
	}
	f, err := finder.KernelByBuildID(ctx, buildID)
	if err != nil {
		return nil, fmt.Errorf("%w; install the debug symbols of the kernel, set DEBUGINFOD_URLS, or give its vmlinux with %s", err, usage.Binary)
	}
	b, err := bolt.NewBinary(f.File)
	return b, errors.Join(err, f.Close())
}

// chooseKernel chooses the running kernel: o.Binary or, if that is empty, the vmlinux with
// its build ID.
func (bs *binaries) chooseKernel(ctx context.Context, o *Options) error {
	finder, err := debugfile.New(debugfile.Config{})
	if err != nil {
		return err
	}
	id, err := finder.KernelBuildID("")
	if err != nil {
		return fmt.Errorf("build ID of the running kernel: %w", err)
	}
	path := o.Binary
	if path == "" {
		found, err := findVmlinux(ctx, id)
		if err != nil {
			return err
		}
		path = found.Name
	}
	if err := bs.chooseFile(path, path, safeopen.AsUser); err != nil {
		return err
	}
	if err := o.checkBinary(bs.only); err != nil {
		return err
	}
	if bs.only.BuildID != id {
		return fmt.Errorf("%s is not the running kernel: its build ID is %s, not %s", plain.Terminal(path), plain.Terminal(bs.only.BuildID), id)
	}
	text, err := symbolize.KernelText(symbolize.Kallsyms)
	if err != nil {
		return fmt.Errorf("find the running kernel in memory: %w", err)
	}
	var ok bool
	if bs.kernel, ok = bs.only.KernelLayout(symbolize.TextSymbol, text); !ok {
		return fmt.Errorf("%s has no symbol %s, so its place in memory is unknown", plain.Terminal(path), symbolize.TextSymbol)
	}
	return nil
}
