package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// lua is the interpreter of Lua.
var lua = subject{
	name: "lua", source: "lua5.4", build: buildLua, writeLoad: writeLua,
	start: startInterpreter("%s", "-e", "for path in io.lines() do dofile(path) end"),
}

func buildLua(ctx context.Context, source, out string) error {
	// Debian's build generates this header, for the paths of modules.
	header := filepath.Join(source, "src", "lua5.4-deb-multiarch.h")
	if err := os.WriteFile(header, []byte("#define DEB_HOST_MULTIARCH \"none\"\n"), 0o644); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(source, "src", "*.c"))
	if err != nil {
		return err
	}
	// llvm-bolt cannot follow the position-independent jumps of luaV_execute, the function
	// that takes most of the time.
	argv := []string{"gcc", "-O2", unsplit, "-fno-pie", "-no-pie", relocations, "-DLUA_USE_POSIX", "-o", out}
	for _, f := range files {
		if filepath.Base(f) != "luac.c" { // another program
			argv = append(argv, f)
		}
	}
	return executeIn(ctx, source, append(argv, "-lm")...)
}

// luaBenchmarks is a function of Lua. Its argument seeds the random numbers.
//
//go:embed testdata/benchmarks.lua
var luaBenchmarks string

// writeLua writes a script with a few classic benchmarks.
func writeLua(w *bufio.Writer, _ int, random func(int) int) {
	fmt.Fprintf(w, "local benchmarks = %s\nbenchmarks(%d)\n", luaBenchmarks, random(1<<30))
}
