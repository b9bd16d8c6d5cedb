// Idle measures the CPU time of a short profile of the whole machine while idle processes map large libraries.
// What fulgur prepares for processes that never run is wasted.
//
// Several -fulgur flags compare versions, which take turns. It needs root and python3. Usage, at the root of the
// repository:
//
//	go run ./bench/idle [-fulgur PATH]... [-processes 10] [-libraries 6] [-rounds 11]
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"fulgur/bench/program"
)

func main() { program.Main("bench/idle", run) }

func run(ctx context.Context, args []string) (err error) {
	var versions []string
	f := flag.NewFlagSet("idle", flag.ContinueOnError)
	f.Func("fulgur", "path of a fulgur binary (default: built from the tree)", func(path string) error {
		versions = append(versions, path)
		return nil
	})
	processes := f.Int("processes", 10, "number of processes")
	each := f.Int("libraries", 6, "number of libraries that each process maps, the largest ones first")
	rounds := f.Int("rounds", 11, "number of profiles with each version")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *processes < 0 || *each < 0 || *rounds < 1 {
		return errors.New("-processes and -libraries must be at least 0, and -rounds at least 1")
	}
	if len(versions) == 0 {
		dir, err := os.MkdirTemp("", "fulgur-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		built, err := program.Build(ctx, dir)
		if err != nil {
			return err
		}
		versions = []string{built}
	}
	files, err := largest(*processes * *each)
	if err != nil {
		return err
	}
	sleeping, stop := context.WithCancel(ctx)
	defer stop()
	for i := range *processes {
		var own []string
		for n := i; n < len(files); n += *processes {
			own = append(own, files[n])
		}
		if err := startSleeper(sleeping, own); err != nil {
			return err
		}
	}
	used := make([][]float64, len(versions)) // seconds
	for round := range *rounds {
		for i := range versions {
			i = (i + round) % len(versions)
			seconds, err := profile(ctx, versions[i])
			if err != nil {
				return err
			}
			used[i] = append(used[i], seconds)
		}
	}
	fmt.Println("| fulgur | CPU s | CPU time divided by that of the first, in each round |")
	fmt.Println("|---|---:|---:|")
	for i, version := range versions {
		ratios := make([]float64, *rounds)
		for n := range ratios {
			ratios[n] = used[i][n] / used[0][n]
		}
		fmt.Printf("| %s | %s | %s |\n", version, spread(used[i]), spread(ratios))
	}
	return nil
}

// largest returns the paths of the n largest shared libraries, or all if there are fewer.
func largest(n int) ([]string, error) {
	files, err := filepath.Glob("/usr/lib/*-linux-gnu/*.so.[0-9]")
	if err != nil {
		return nil, err
	}
	size := map[string]int64{}
	for _, name := range files {
		if info, err := os.Stat(name); err == nil { // otherwise, a dangling link
			size[name] = info.Size()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Or(cmp.Compare(size[b], size[a]), cmp.Compare(a, b)) })
	return files[:min(n, len(files))], nil
}

// sleeps is a Python program that maps files as code, prints a line, and sleeps.
const sleeps = `
import mmap, sys, time
code = []
for name in sys.argv[1:]:
    with open(name, "rb") as f:
        code.append(mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print(flush=True)
time.sleep(3600)
`

// startSleeper starts a process, which ends with ctx, and waits until it sleeps.
func startSleeper(ctx context.Context, libraries []string) error {
	c := exec.CommandContext(ctx, "/usr/bin/python3", append([]string{"-c", sleeps}, libraries...)...)
	c.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("start a process: %w", err)
	}
	return nil
}

// profile returns the CPU time of a profile, in seconds.
func profile(ctx context.Context, fulgur string) (float64, error) {
	c := exec.CommandContext(ctx, fulgur, "profile", "-F", "19", "--no-inlines", "-q", "-f", "-o", os.DevNull, "0.2")
	if out, err := c.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", fulgur, err, out)
	}
	return (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds(), nil
}

// spread formats the median and the range.
func spread(values []float64) string {
	sorted := slices.Sorted(slices.Values(values))
	return fmt.Sprintf("%.2f [%.2f–%.2f]", sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1])
}
