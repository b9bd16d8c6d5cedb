package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
)

// packed are the profiles of many runs. Stacks are a tree, as in a profile, and have their samples in
// each run that has any.
type packed struct {
	runs   int
	frames []frame
	stacks []stack // without the empty stack

	frameOf map[frame]int
	stackOf map[[2]int]int
}

// frame is what a comparison needs of a frame.
type frame struct {
	kind         profile.Kind
	module, name string
}

// stack is a caller, which is the number of a stack or 0, a frame in it, and samples by run.
type stack struct {
	parent, frame int
	samples       map[int]int64
}

func newPacked() *packed { return &packed{frameOf: map[frame]int{}, stackOf: map[[2]int]int{}} }

// addStack returns the number of a stack, which is its index plus one.
func (k *packed) addStack(parent int, f frame) int {
	at, ok := k.frameOf[f]
	if !ok {
		at = len(k.frames)
		k.frameOf[f] = at
		k.frames = append(k.frames, f)
	}
	id, ok := k.stackOf[[2]int{parent, at}]
	if !ok {
		k.stacks = append(k.stacks, stack{parent, at, map[int]int64{}})
		id = len(k.stacks)
		k.stackOf[[2]int{parent, at}] = id
	}
	return id
}

// add adds a run with the samples of a profile.
func (k *packed) add(p *profile.Profile) {
	ids := make([]int, len(p.Stacks))
	for i := 1; i < len(p.Stacks); i++ {
		f := p.Frames[p.Stacks[i].Frame]
		ids[i] = k.addStack(ids[p.Stacks[i].Parent], frame{f.Kind, p.Mappings[f.Mapping].Path, p.Functions[f.Function].Name})
	}
	for _, s := range p.Samples {
		if id := ids[s.Stack]; id > 0 {
			k.stacks[id-1].samples[k.runs] += s.Values[0]
		}
	}
	k.runs++
}

// profile returns the sum of some runs.
func (k *packed) profile(runs ...int) *profile.Profile {
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
	frames := make([]profile.FrameID, len(k.frames))
	for i, f := range k.frames {
		made := profile.Frame{Kind: f.kind}
		if f.module != "" {
			made.Mapping = b.Mapping(profile.Mapping{Path: f.module})
		}
		if f.name != "" {
			made.Function = b.Function(profile.Function{Name: f.name, SystemName: f.name})
		}
		frames[i] = b.Frame(made)
	}
	sums, needed := make([]int64, len(k.stacks)), make([]bool, len(k.stacks)+1)
	for i := len(k.stacks) - 1; i >= 0; i-- { // callers come first
		s := k.stacks[i]
		for _, run := range runs {
			sums[i] += s.samples[run]
		}
		if needed[i+1] = needed[i+1] || sums[i] > 0; needed[i+1] {
			needed[s.parent] = true
		}
	}
	ids := make([]profile.StackID, len(k.stacks)+1)
	task := b.Task(profile.Task{Comm: "recorded"})
	for i, s := range k.stacks {
		if !needed[i+1] {
			continue
		}
		ids[i+1] = b.Push(ids[s.parent], frames[s.frame])
		if sums[i] > 0 {
			b.Add(profile.Sample{Stack: ids[i+1], Task: task, CPU: -1, Values: []int64{sums[i]}})
		}
	}
	return b.Profile(profile.Meta{}, profile.Losses{})
}

// write writes k as compressed text: a line with the numbers of runs and frames, one for each frame, and
// one for each stack with its caller, its frame, and the samples in runs.
func (k *packed) write(w io.Writer) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(z)
	fmt.Fprintf(out, "%d %d\n", k.runs, len(k.frames))
	for _, f := range k.frames {
		fmt.Fprintf(out, "%d\t%s\t%s\n", f.kind, f.module, f.name)
	}
	for _, s := range k.stacks {
		fmt.Fprintf(out, "%d %d", s.parent, s.frame)
		for _, run := range slices.Sorted(maps.Keys(s.samples)) {
			fmt.Fprintf(out, " %d:%d", run, s.samples[run])
		}
		fmt.Fprintln(out)
	}
	return errors.Join(out.Flush(), z.Close())
}

// readPacked reads a file that write has written.
func readPacked(path string) (*packed, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	k, err := parse(bufio.NewScanner(z))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

func parse(in *bufio.Scanner) (*packed, error) {
	k, frames := newPacked(), 0
	in.Buffer(nil, 1<<20)
	in.Scan()
	if _, err := fmt.Sscanf(in.Text(), "%d %d", &k.runs, &frames); err != nil {
		return nil, err
	}
	for range frames {
		in.Scan()
		fields := strings.Split(in.Text(), "\t")
		if len(fields) != 3 {
			return nil, fmt.Errorf("%q is not a frame", in.Text())
		}
		kind, err := strconv.ParseUint(fields[0], 10, 8)
		if err != nil {
			return nil, err
		}
		k.frames = append(k.frames, frame{profile.Kind(kind), fields[1], fields[2]})
	}
	for in.Scan() {
		words := strings.Fields(in.Text())
		s := stack{samples: map[int]int64{}}
		for i, word := range words {
			one, two, _ := strings.Cut(word, ":")
			n, err := strconv.Atoi(one)
			if err != nil {
				return nil, err
			}
			switch i {
			case 0:
				s.parent = n
			case 1:
				s.frame = n
			default:
				if s.samples[n], err = strconv.ParseInt(two, 10, 64); err != nil {
					return nil, err
				}
			}
		}
		if s.parent > len(k.stacks) || s.frame >= len(k.frames) {
			return nil, fmt.Errorf("%q refers to what is not there", in.Text())
		}
		k.stacks = append(k.stacks, s)
	}
	return k, in.Err()
}

// pack packs the profiles in dir into files in to.
func pack(ctx context.Context, dir, to string) error {
	all := map[string]*packed{}
	for round := 0; ; round++ {
		found := false
		for _, p := range programs {
			path := filepath.Join(dir, fmt.Sprintf("%s-%03d.pb.gz", p.name, round))
			f, err := os.Open(path)
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			read, _, err := decode.Read(ctx, f, path)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			found = true
			if all[p.pack] == nil {
				all[p.pack] = newPacked()
			}
			all[p.pack].add(read.Only(0))
		}
		if !found {
			break
		}
	}
	for name, k := range all {
		var out bytes.Buffer
		if err := k.write(&out); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name+".gz"), out.Bytes(), 0o600); err != nil {
			return err
		}
		fmt.Printf("%s: %d runs, %d stacks, %d bytes\n", name, k.runs, len(k.stacks), out.Len())
	}
	return nil
}
