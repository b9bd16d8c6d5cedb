package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// child runs fulgur's symbolizer like the other programs: it reads addresses from in, one
// per line, and writes the functions at each address to out, innermost first, with file
// and line, as llvm-symbolizer does.
func child(ctx context.Context, path string, in io.Reader, out io.Writer) (err error) {
	addrs, err := readAddresses(in)
	if err != nil {
		return err
	}
	finder, err := debugfile.New(debugfile.Config{Getenv: func(string) string { return "" }})
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	e, err := symbolize.OpenELF(f, info.Size(), path, symbolize.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	e.Search(ctx, finder, "/", path)
	found, err := e.LookupBatch(addrs)
	if err != nil {
		return err
	}
	return writeFrames(out, found)
}

// readAddresses reads hexadecimal numbers, one per line.
func readAddresses(in io.Reader) ([]uint64, error) {
	var addrs []uint64
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		addr, err := strconv.ParseUint(lines.Text(), 0, 64)
		if err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
		addrs = append(addrs, addr)
	}
	return addrs, lines.Err()
}

// writeFrames writes frames in llvm-symbolizer's format.
func writeFrames(w io.Writer, found [][]symbolize.Frame) error {
	out := bufio.NewWriter(w) // keeps its first error until Flush
	for _, chain := range found {
		for _, f := range chain {
			fmt.Fprintf(out, "%s\n%s:%d\n", f.Name, f.File, f.Line)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}
