package branches

import (
	"context"
	"fmt"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/message/plain"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

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
		return fmt.Errorf("%s is another kernel than the running one: its build ID is %s, not %s", plain.Terminal(path), plain.Terminal(bs.only.BuildID), id)
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
